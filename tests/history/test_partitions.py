"""Partitions: ranges of ids that are ranges of time, made ahead, found by id, dropped when nobody needs them."""

import re
import time
import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.running import environ
from tests.history.servers import finished
from tests.history.situations import execute, replicate_all, rows
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.kept_store import KeptStore
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.schema.partitions import AHEAD, TABLES, Partitions, Range, id_at, instant_of, missing_ranges
from tideq.persistence.settings import DAY_MS, HistorySettings
from tideq.queue_core.errors import HistoryUnavailable

NOW = 1_900_000_000_000
WEEK = 7 * DAY_MS
COMPLETED, QUEUED, DEAD = "completed", "queued", "dead_letter"
INSTANTS = st.integers(0, 2**41)
WIDTHS = st.integers(1, 400 * DAY_MS)


@given(starts=st.lists(st.tuples(INSTANTS, WIDTHS), max_size=6))
def test_ranges_made_over_time_never_overlap_and_always_cover_what_comes(starts: list[tuple[int, int]]) -> None:
    """Whatever the width was, however long nobody made any, and if the clock went back."""
    present: list[Range] = []
    for now_ms, width_ms in starts:
        present += missing_ranges(present, now_ms, width_ms)
        assert any(each.end_ms > now_ms + AHEAD * width_ms for each in present)

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
    old = await partitions.make_ahead(now_ms - 200 * DAY_MS) + await partitions.make_ahead(now_ms - 150 * DAY_MS)
    recent = await partitions.make_ahead(now_ms - 80 * DAY_MS) + await partitions.make_ahead(now_ms)
    await _add(database, old[0], COMPLETED)
    await _add(database, old[1], QUEUED)
    await _add(database, old[2], DEAD, died_ms=now_ms - 10 * DAY_MS)
    await _add(database, old[3], DEAD, died_ms=now_ms - 40 * DAY_MS)
    await _add(database, recent[0], COMPLETED)

    dropped = await partitions.prune(now_ms, dead_letter_ttl_ms=30 * DAY_MS)

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


TASK = """
INSERT INTO tasks
    (task_id, epoch, version, state, reason, task_type, priority, created_at, parameters, attributes, record)
VALUES (%s, 1, 1, %s, 'submitted', 'resize', 'low', now(), '{}', '{}', '')
"""
DEAD_LETTER = """
INSERT INTO dead_letter_tasks (task_id, died_at, task_type, priority, reason, pattern, message, retriable)
VALUES (%s, to_timestamp(%s / 1000.0), 'resize', 'low', 'poison', 'p', 'm', true)
"""


async def test_a_database_that_does_not_go_on_is_given_up(
    migrated: Database, history_settings: HistorySettings
) -> None:
    now_ms = time.time_ns() // 1_000_000 + 10 * WEEK
    async with migrated.session() as blocker, blocker.transaction():
        await blocker.execute("LOCK TABLE tasks")
        with pytest.raises(HistoryUnavailable, match="took longer"):
            await Partitions(migrated, history_settings, max_seconds=0.2).make_ahead(now_ms)

    assert await Partitions(migrated, history_settings).make_ahead(now_ms) != []
