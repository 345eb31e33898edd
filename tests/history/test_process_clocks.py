"""What history keeps goes by the store's and PostgreSQL's clocks, whatever those of processes and of submitters say."""

import time
import uuid
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest

from tests.api.bench import Bench
from tests.api.running import environ, serving
from tests.chaos.shim import Shim
from tests.history.situations import execute, replicate_all, rows
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.kept_store import KeptStore
from tideq.persistence.schema import partitions as partitions_module
from tideq.persistence.schema.clocks import Clocks
from tideq.persistence.schema.partitions import DEPENDENTS, TABLES, Partitions, id_at, instant_of
from tideq.persistence.settings import DAY_MS, HistorySettings

DEAD_LETTER_TTL_MS = 30 * DAY_MS
BEFORE_ALL_RANGES_MS = 1_400_000_000_000
TASK = """
INSERT INTO tasks (task_id, epoch, version, state, reason, task_type, priority, created_at, ended_at, parameters,
    attributes, record)
VALUES (%s, 1, 1, %s, 'submitted', 'resize', 'low', now(), to_timestamp(%s / 1000.0), '{}', '{}', '')
"""
EVENT = """
INSERT INTO task_events (task_id, epoch, version, at, state, reason, attempt)
VALUES (%s, 1, 1, now(), 'queued', 'submitted', 0)
"""
TERM = "INSERT INTO task_terms (term, task_id) VALUES ('word', %s)"
DEAD_LETTER = """
INSERT INTO dead_letter_tasks (task_id, died_at, task_type, priority, reason, pattern, message, retriable)
VALUES (%s, to_timestamp(%s / 1000.0), 'resize', 'low', 'poison', 'p', 'm', true)
"""


@pytest.mark.parametrize("days", [-100, -85, 365])
async def test_tasks_of_a_process_whose_clock_is_off_are_kept_as_long_as_any(
    kit: Kit,
    kept: KeptStore,
    migrated: Database,
    store: StoreUnderTest,
    history_settings: HistorySettings,
    monkeypatch: pytest.MonkeyPatch,
    days: int,
) -> None:
    """Months behind, they would be dropped within days, or lie in no partition and never be."""
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + days * DAY_MS * 1_000_000)
    task_id = await kit.submit(tags={"kept": "yes"})
    await kit.worker()
    await kit.fail(await kit.started(), verdict="discard")
    await replicate_all(kept, store.url, kit, migrated)
    partitions = Partitions(migrated, history_settings)
    now_ms = (await partitions.clocks(0)).database_ms

    later_ms = now_ms + history_settings.retention_ms - DAY_MS
    await partitions.prune(Clocks(later_ms, later_ms), DEAD_LETTER_TTL_MS)

    assert abs(instant_of(uuid.UUID(task_id)) - now_ms) < 60_000
    for table in TABLES:
        query = f"SELECT DISTINCT tableoid::regclass::text FROM {table}"  # noqa: S608 - one of ours
        ((place,),) = await rows(migrated, query)
        assert not str(place).endswith("_default")


async def test_a_service_whose_host_is_months_behind_names_tasks_by_the_stores_time(
    store: StoreUnderTest, queue_name: str, tmp_path: Path
) -> None:
    shim = Shim(tmp_path / "shim")
    if shim.missing:
        pytest.skip(shim.missing)
    shim.jump(-100 * DAY_MS)
    (tmp_path / "serve").mkdir()

    with serving(environ(store.url, queue_name) | shim.environ, tmp_path / "serve") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=40) as client:
            task_ids = [await Bench(client).submit() for _ in range(2)]
            said = parsedate_to_datetime((await client.get("/livez")).headers["date"]).timestamp()

    assert time.time() - said > 99 * DAY_MS / 1_000, "the process is not behind at all"
    assert all(abs(instant_of(uuid.UUID(task_id)) / 1_000 - time.time()) < 60 for task_id in task_ids)


async def test_tasks_that_lie_in_no_range_go_once_they_ended_too_long_ago(
    migrated: Database, history_settings: HistorySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids say nothing of their age, and their partition is never dropped."""
    monkeypatch.setattr(partitions_module, "PAGE_SIZE", 3)
    partitions = Partitions(migrated, history_settings)
    clocks = await partitions.clocks(time.time_ns() // 1_000_000)
    now_ms, oldest_ms = clocks.database_ms, clocks.database_ms - history_settings.retention_ms
    gone = [await _add(migrated, number, "completed", oldest_ms - 60_000) for number in range(7)]
    gone.append(await _add(migrated, 10, "dead_letter", oldest_ms - 60_000, now_ms - DEAD_LETTER_TTL_MS - 60_000))
    gone.append(await _add(migrated, 365 * DAY_MS * 40, "cancelled", oldest_ms - 60_000))
    stays = [
        await _add(migrated, 20, "completed", oldest_ms + 60_000),
        await _add(migrated, 21, "queued", None),
        await _add(migrated, 22, "dead_letter", oldest_ms - 60_000, now_ms - DEAD_LETTER_TTL_MS + 60_000),
    ]

    await partitions.prune(clocks, DEAD_LETTER_TTL_MS)

    assert await rows(migrated, "SELECT task_id FROM tasks ORDER BY 1") == [(task_id,) for task_id in sorted(stays)]
    for table in DEPENDENTS:
        query = f"SELECT count(*) FROM {table} WHERE task_id = ANY (%s)"  # noqa: S608 - one of ours
        ((left,),) = await rows(migrated, query, gone)
        assert left == 0, table
    assert dict(await rows(migrated, "SELECT state, task_count FROM dropped_totals")) == {
        "completed": 7,
        "dead_letter": 1,
        "cancelled": 1,
    }


async def test_a_task_that_is_just_being_revived_stays(migrated: Database, history_settings: HistorySettings) -> None:
    partitions = Partitions(migrated, history_settings)
    clocks = await partitions.clocks(time.time_ns() // 1_000_000)
    held = await _add(migrated, 1, "failed", clocks.database_ms - 2 * history_settings.retention_ms)
    other = await _add(migrated, 2, "failed", clocks.database_ms - 2 * history_settings.retention_ms)

    async with migrated.session() as reviver, reviver.transaction():
        await reviver.execute("SELECT FROM tasks WHERE task_id = %s FOR KEY SHARE", (held,))
        await partitions.prune(clocks, DEAD_LETTER_TTL_MS)
        left = await rows(migrated, "SELECT task_id FROM tasks")

    assert (left, held != other) == ([(held,)], True)


async def _add(
    database: Database, number: int, state: str, ended_ms: int | None, died_ms: int | None = None
) -> uuid.UUID:
    """A task whose id lies where no partition is."""
    task_id = id_at(BEFORE_ALL_RANGES_MS + number)
    await execute(database, TASK, task_id, state, ended_ms)
    await execute(database, EVENT, task_id)
    await execute(database, TERM, task_id)
    if died_ms is not None:
        await execute(database, DEAD_LETTER, task_id, died_ms)
    return task_id
