"""Partitions: ranges of ids that are ranges of time, made ahead, found by id, dropped when nobody needs them."""

import asyncio
import re
import time
import uuid
from collections import Counter
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.api.running import environ
from tests.history.scale import PATIENCE_SECONDS
from tests.history.servers import finished
from tests.history.situations import (
    execute,
    replicate_all,
    replicating,
    rows,
    until,
    until_replicated,
    until_somebody_waits_for,
)
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import READING, Database
from tideq.persistence.reading.filters import TaskFilter
from tideq.persistence.reading.listing import Listing
from tideq.persistence.recovery.kept_store import KeptStore
from tideq.persistence.schema import partitions as partitions_module
from tideq.persistence.schema.clocks import Clocks, ClocksDiffer, store_instants
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.schema.partitions import (
    AHEAD,
    TABLES,
    Partitions,
    PartitionsBusy,
    PartitionsSlow,
    Range,
    _make,  # pyright: ignore[reportPrivateUsage]
    existing,
    id_at,
    instant_of,
    missing_ranges,
)
from tideq.persistence.settings import DAY_MS, HistorySettings
from tideq.queue_core.background import running
from tideq.queue_core.duties import Duties
from tideq.queue_core.task import NewTask
from tideq.workers.monitor.pruner import BUSY_SECONDS, SLOW_SECONDS, prune_for_ever

NOW = 1_900_000_000_000
WEEK = 7 * DAY_MS
COMPLETED, QUEUED, DEAD = "completed", "queued", "dead_letter"
INSTANTS = st.integers(0, 2**41)
WIDTHS = st.integers(1, 400 * DAY_MS)


@given(starts=st.lists(st.tuples(INSTANTS, WIDTHS), max_size=6))
def test_ranges_made_over_time_never_overlap_and_always_cover_what_comes(starts: list[tuple[int, int]]) -> None:
    """Whatever the width was, however long nobody made any, and if the clock went back or leaped for a while."""
    present: list[Range] = []
    for now_ms, width_ms in starts:
        present += missing_ranges(present, now_ms, width_ms)
        places = [each for each in sorted(present) if now_ms < each.end_ms]
        assert places[0].start_ms <= now_ms
        while places[0].end_ms <= now_ms + AHEAD * width_ms:
            place = places.pop(0)
            assert place.end_ms == places[0].start_ms, "every instant from now on has its place"

    ordered = sorted(present)
    assert all(before.end_ms <= after.start_ms for before, after in pairwise(ordered))
    assert all(each.start_ms < each.end_ms for each in ordered)


@given(INSTANTS)
def test_the_lowest_id_of_an_instant_names_it(instant_ms: int) -> None:
    assert instant_of(id_at(instant_ms)) == instant_ms
    assert id_at(instant_ms) < id_at(instant_ms + 1)


async def test_partitions_are_made_once_and_for_a_while_ahead(
    migrated: Database, history_settings: HistorySettings
) -> None:
    partitions = Partitions(migrated, history_settings)

    made = await partitions.make_ahead(NOW)

    assert await partitions.make_ahead(NOW) == []
    assert made[0].start_ms <= NOW < made[0].end_ms
    assert made[-1].end_ms > NOW + AHEAD * WEEK
    assert len(await partitions.make_ahead(NOW + WEEK)) == 1


async def test_what_lies_outside_all_ranges_moves_when_its_range_is_made(
    kit: Kit, kept: KeptStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    """Ids may be chosen by clients, and those of a clock that is off lie anywhere."""
    far = NOW + 1_000 * DAY_MS
    ids = sorted(str(uuid.UUID(int=id_at(far + number).int | 7 << 76 | 2 << 62)) for number in range(3))
    for task_id in ids:
        await kit.submit(task_id=task_id, tags={"far": "yes"})
    await kit.worker()
    await kit.fail(await kit.started(), verdict="discard")
    await replicate_all(kept, store.url, kit, migrated)
    before = {table: await _placed(migrated, table) for table in TABLES}

    made = await Partitions(migrated, history_settings).make_ahead(far)

    assert {place for places in before.values() for _, place in places} == {f"{table}_default" for table in TABLES}
    for table in TABLES:
        after = await _placed(migrated, table)
        assert [task_id for task_id, _ in after] == [task_id for task_id, _ in before[table]]
        assert {place for _, place in after} == {f"{table}_{made[0].suffix}"}
    await kit.queue.cancel(ids[1])
    await replicate_all(kept, store.url, kit, migrated)
    assert len(await _placed(migrated, "task_events")) == len(before["task_events"]) + 1


async def test_a_range_of_which_the_default_partition_holds_much_is_made_in_parts(
    kit: Kit, kept: KeptStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    """Everybody waits while rows move: as few move at once as the database has time for. Others go on in between."""
    far = NOW + 1_000 * DAY_MS
    spread = [*range(40), *(DAY_MS + each // 7 for each in range(40))]
    ids = sorted(str(uuid.UUID(int=id_at(far + after).int | 7 << 76 | 2 << 62 | at)) for at, after in enumerate(spread))
    await kit.queue.submit_many([NewTask(task_type="resize", task_id=each, tags={"far": "yes"}) for each in ids])
    await replicate_all(kept, store.url, kit, migrated)
    before = {table: [task_id for task_id, _ in await _placed(migrated, table)] for table in TABLES}
    partitions = Partitions(migrated, history_settings, moved_rows=20)

    with capture_logs() as logs:
        made = await partitions.make_ahead(far)

    after = {table: await _placed(migrated, table) for table in TABLES}
    places = Counter(place for _, place in after["tasks"])
    assert {table: [task_id for task_id, _ in placed] for table, placed in after.items()} == before
    assert max(places.values()) <= 30
    assert "tasks_default" not in places
    assert [each["count"] for each in logs if each["event"].startswith("partition made in parts")] == [len(made) - 2]
    assert made[0].start_ms <= far < made[0].end_ms
    assert all(earlier.end_ms == later.start_ms for earlier, later in pairwise(made))
    assert await partitions.make_ahead(far) == []


async def test_pruning_that_took_too_long_in_vain_is_tried_again_much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, has_paused_twice, sleep = list[float](), asyncio.Event(), asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            has_paused_twice.set()
            await asyncio.Event().wait()
        await sleep(0)

    class Slow:
        async def make_ahead(self) -> None:
            raise PartitionsBusy("a list is long") if pauses else PartitionsSlow("there are many rows")

    monkeypatch.setattr("tideq.workers.monitor.pruner.asyncio.sleep", pause)
    with capture_logs() as logs:
        async with running(prune_for_ever(cast("Partitions", Slow()), 0, Duties())):
            await has_paused_twice.wait()

    assert pauses == [SLOW_SECONDS, BUSY_SECONDS]
    assert [each["retry_seconds"] for each in logs if each["event"] == "pruning postponed"] == pauses


async def _placed(database: Database, table: str) -> list[tuple[str, str]]:
    query = f"SELECT task_id::text, tableoid::regclass::text FROM {table} ORDER BY 1"  # noqa: S608 - one of ours
    return [(task_id, place) for task_id, place in await rows(database, query)]  # pyright: ignore[reportArgumentType]


async def test_a_look_up_by_id_opens_one_partition(migrated: Database, history_settings: HistorySettings) -> None:
    for weeks in (0, 10, 20):
        await Partitions(migrated, history_settings).make_ahead(NOW + weeks * WEEK)

    for table in TABLES:
        for condition in ("task_id = %s", "task_id = ANY (ARRAY[%s]::uuid[])"):
            query = f"EXPLAIN SELECT * FROM {table} WHERE {condition}"  # noqa: S608 - ours
            plan = "\n".join(line for (line,) in await rows(migrated, query, id_at(NOW + 10 * WEEK)))  # pyright: ignore[reportArgumentType]
            assert len(set(re.findall(rf"{table}_(?:default|\d+_\d+)", plan))) == 1, plan


async def test_old_partitions_are_dropped_unless_something_in_them_is_needed(
    database: Database, history_settings: HistorySettings, store: StoreUnderTest, queue_name: str
) -> None:
    await migrate(database)
    now_ms = time.time_ns() // 1_000_000
    partitions = Partitions(database, history_settings)
    clocks = await partitions.clocks(now_ms)
    old = await partitions.make_ahead(now_ms - 200 * DAY_MS) + await partitions.make_ahead(now_ms - 150 * DAY_MS)
    recent = await partitions.make_ahead(now_ms - 80 * DAY_MS) + await partitions.make_ahead(now_ms)
    await _add(database, old[0], COMPLETED)
    await _add(database, old[1], QUEUED)
    await _add(database, old[2], DEAD, died_ms=now_ms - 10 * DAY_MS)
    await _add(database, old[3], DEAD, died_ms=now_ms - 40 * DAY_MS)
    await _add(database, recent[0], COMPLETED)

    dropped = await partitions.prune(clocks, dead_letter_ttl_ms=30 * DAY_MS)

    assert dropped == [old[0], *old[3:]]
    for table in TABLES:
        left = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
        names = {f"{table}_default", *(f"{table}_{each.suffix}" for each in (old[1], old[2], *recent))}
        assert {name for (name,) in await rows(database, left, table)} == names
    states = dict(await rows(database, "SELECT state, count(*) FROM tasks GROUP BY 1"))
    assert states == {COMPLETED: 1, QUEUED: 1, DEAD: 1}

    settings = environ(store.url, queue_name, DATABASE_URL=history_settings.database_url)
    assert finished(settings, "prune").stdout == "0 partitions made, 0 dropped\n"


async def _add(database: Database, place: Range, state: str, died_ms: int = 0) -> None:
    task_id = id_at(place.start_ms + 5)
    await execute(database, TASK, task_id, state)
    if state == DEAD:
        await execute(database, DEAD_LETTER, task_id, died_ms)


WAITING_UPDATE = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ '^UPDATE tasks'"
TASK = """
INSERT INTO tasks
    (task_id, epoch, version, state, reason, task_type, priority, created_at, parameters, attributes, record)
VALUES (%s, 1, 1, %s, 'submitted', 'resize', 'low', now(), '{}', '{}', '')
"""
DEAD_LETTER = """
INSERT INTO dead_letter_tasks (task_id, died_at, task_type, priority, reason, pattern, message, retriable)
VALUES (%s, to_timestamp(%s / 1000.0), 'resize', 'low', 'poison', 'p', 'm', true)
"""


async def test_a_partition_stays_until_its_end_is_old(migrated: Database, history_settings: HistorySettings) -> None:
    partitions = Partitions(migrated, history_settings)
    clocks = await partitions.clocks(time.time_ns() // 1_000_000)
    edge_ms = clocks.database_ms - history_settings.retention_ms
    async with migrated.session() as connection:
        for across in (Range(edge_ms - 2 * WEEK, edge_ms - WEEK), Range(edge_ms - WEEK, edge_ms + 1)):
            await _make(connection, across)

    dropped = await partitions.prune(clocks, dead_letter_ttl_ms=0)

    assert dropped == [Range(edge_ms - 2 * WEEK, edge_ms - WEEK)]


async def test_a_process_whose_clock_is_off_makes_and_drops_what_the_database_says(
    migrated: Database, history_settings: HistorySettings, monkeypatch: pytest.MonkeyPatch, kept: KeptStore
) -> None:
    """A year ahead, it would drop all of history, and make no partition for the present ever again."""
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 365 * DAY_MS * 1_000_000)
    partitions, seen = Partitions(migrated, history_settings), list[Clocks]()
    before = await _ranges(migrated)
    in_time = asyncio.Event()

    def note(clocks: Clocks) -> None:
        seen.append(clocks)
        in_time.set()

    async def instants() -> list[int]:
        return await store_instants(kept.plain_client, kept.engine)

    with capture_logs() as logs:
        async with running(prune_for_ever(partitions, 0, Duties(), instants, note)):
            await asyncio.wait_for(in_time.wait(), PATIENCE_SECONDS)
            await until(lambda: _has(logs, "pruning postponed"))

    assert await _ranges(migrated) == before
    assert seen[0].difference_ms == pytest.approx(365 * DAY_MS, abs=60_000)
    assert "clocks differ" in logs[0]["error"]


async def _has(logs: list[Any], event: str) -> bool:
    return any(each["event"] == event for each in logs)


async def _ranges(database: Database) -> list[Range]:
    async with database.session() as connection:
        return await existing(connection)


@pytest.mark.parametrize("off_ms", [-3_700_000, 3_700_000])
@pytest.mark.parametrize("clock", ["process", "store"])
async def test_nothing_is_dropped_while_one_clock_is_an_hour_off(
    migrated: Database, history_settings: HistorySettings, clock: str, off_ms: int
) -> None:
    partitions = Partitions(migrated, history_settings)
    now = (await partitions.clocks(0)).database_ms
    await partitions.make_ahead(now - 200 * DAY_MS)
    before = await _ranges(migrated)
    clocks = Clocks(now, now + off_ms) if clock == "process" else Clocks(now, now, (now, now + off_ms))

    with pytest.raises(ClocksDiffer, match=f"3700 s {'ahead of' if off_ms > 0 else 'behind'} PostgreSQL"):
        await partitions.prune(clocks, 0)

    assert await _ranges(migrated) == before
    assert await partitions.prune(Clocks(now, now + 3_500_000, (now,)), 0) != []


async def test_partitions_for_the_present_are_made_whatever_lies_in_the_future(
    migrated: Database, history_settings: HistorySettings
) -> None:
    """As a clock left them that was a year ahead for a moment."""
    partitions = Partitions(migrated, history_settings)
    await partitions.make_ahead(NOW + 365 * DAY_MS)

    made = await partitions.make_ahead(NOW)

    assert made[0].start_ms <= NOW < made[0].end_ms
    assert made[-1].end_ms > NOW + AHEAD * WEEK


async def test_a_database_that_does_not_go_on_is_given_up(
    migrated: Database, history_settings: HistorySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions_module, "LOCKED_SHORTLY", "SET LOCAL lock_timeout = 0")
    now_ms = time.time_ns() // 1_000_000 + 10 * WEEK
    async with migrated.session() as blocker, blocker.transaction():
        await blocker.execute("LOCK TABLE ONLY tasks")
        with pytest.raises(PartitionsSlow, match="took longer"):
            await Partitions(migrated, history_settings, max_seconds=0.2).make_ahead(now_ms)

    assert await Partitions(migrated, history_settings).make_ahead(now_ms) != []


async def test_a_long_reader_keeps_partitions_as_they_are_and_nobody_waits_behind_it(
    kit: Kit, kept: KeptStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    """As a dump does, which holds every table for hours. Lists, the replicator and durable submissions go on."""
    partitions = Partitions(migrated, history_settings, waits=(0.05, 0.05))
    clocks = await partitions.clocks(time.time_ns() // 1_000_000)
    await partitions.make_ahead(clocks.database_ms - 200 * DAY_MS)
    before = await _ranges(migrated)
    listing = Listing(migrated)

    async with (
        replicating(kept, store.url, kit),
        migrated.session() as reader,
        reader.transaction(),
    ):
        await reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await reader.execute("SELECT count(*) FROM tasks, task_events, task_terms, dead_letter_tasks")
        changes = asyncio.gather(
            partitions.prune(clocks, 0),
            partitions.make_ahead(clocks.database_ms + 10 * WEEK),
            return_exceptions=True,
        )
        rounds = 0
        while not changes.done():
            await kit.submit()
            async with asyncio.timeout(READING.lock_ms / 1000):
                await until_replicated(kit, migrated)
                assert (await listing.page(TaskFilter())).tasks
            rounds += 1
        refused = await changes

    assert [type(each) for each in refused] == [PartitionsBusy, PartitionsBusy]
    assert rounds > 1
    assert await _ranges(migrated) == before
    assert await partitions.prune(clocks, 0) != []
    assert await partitions.make_ahead(clocks.database_ms + 10 * WEEK) != []


async def test_a_task_revived_just_before_its_partition_would_go_keeps_it(
    migrated: Database, history_settings: HistorySettings
) -> None:
    """Whoever drops it looked, found nothing that is needed, and then has to wait for one who writes."""
    partitions = Partitions(migrated, history_settings, waits=(0.01,) * 200)
    clocks = await partitions.clocks(time.time_ns() // 1_000_000)
    old = (await partitions.make_ahead(clocks.database_ms - 200 * DAY_MS))[0]
    await _add(migrated, old, COMPLETED)

    async with migrated.session() as writer:
        async with writer.transaction():
            await writer.execute("UPDATE tasks SET state = 'queued'")
            pruning = asyncio.create_task(partitions.prune(clocks, 0))
            await until_somebody_waits_for(migrated, "tasks")
        dropped = await pruning

    assert old not in dropped
    assert old in await _ranges(migrated)


async def test_what_is_written_while_its_range_is_made_is_not_lost(
    migrated: Database, history_settings: HistorySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who changes a row just when it moves from the default partition finds it in its new one."""
    monkeypatch.setattr(partitions_module, "LOCKED_SHORTLY", "SET LOCAL lock_timeout = 0")
    partitions = Partitions(migrated, history_settings)
    place = Range(NOW - NOW % WEEK, NOW)
    await _add(migrated, place, QUEUED)

    async with migrated.session() as reader, reader.transaction():
        await reader.execute("SELECT FROM tasks_default")
        making = asyncio.create_task(partitions.make_ahead(NOW))
        await until_somebody_waits_for(migrated, "tasks_default")
        writing = asyncio.create_task(execute(migrated, "UPDATE tasks SET version = 2, state = 'completed'"))
        await until(lambda: rows(migrated, WAITING_UPDATE))
    made = await making
    await writing

    assert await rows(migrated, "SELECT version, state, tableoid::regclass::text FROM tasks") == [
        (2, COMPLETED, f"tasks_{made[0].suffix}")
    ]
