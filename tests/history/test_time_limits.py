"""How long sessions with PostgreSQL may take: as this service says, whatever the role, database or server say."""

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise
from typing import LiteralString

import pytest
from structlog.testing import capture_logs

from tests.architecture.maps import ROOT
from tests.history.situations import execute, replicate_all, replicating, rows, until_replicated
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.api.settings import ServiceSettings
from tideq.cli.checks import history as checks_module
from tideq.cli.checks.history import check_history
from tideq.persistence.database import (
    MIGRATING,
    READING,
    REPAIRING,
    WAITING,
    WRITING,
    Connection,
    Database,
    SessionLimits,
)
from tideq.persistence.read.tasks import lock_tasks
from tideq.persistence.recovery import open_store as open_store_module
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.replication import replicator as replicator_module
from tideq.persistence.replication.batch import MAX_EVENTS, BatchLimit
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import NewTask

NAMES = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
)
OF_THE_ROLE = "options=" + "%20".join(f"-c%20{name}%3D{'100ms' if name == NAMES[0] else '20s'}" for name in NAMES)
"""As `ALTER ROLE … SET` has it, for one connection."""
SLOW: LiteralString = """
CREATE FUNCTION wait_a_little() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$;
CREATE TRIGGER slow AFTER INSERT ON task_events FOR EACH STATEMENT EXECUTE FUNCTION wait_a_little()
"""
AT_MOST_THREE: LiteralString = """
CREATE FUNCTION cancel_what_is_large() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM added) > 3 THEN
        RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER large AFTER INSERT ON task_events REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION cancel_what_is_large()
"""
"""What a statement's time limit comes to where three events fit into it, however fast the machine is."""


SESSION = re.compile(r"\.session\(([^()]*)")
SAYS_LIMITS = re.compile(r"\blimits=|\b[A-Z]{7,}\b")


@pytest.fixture
def impatient_url(database_url: str) -> str:
    """As a role that gives every statement a tenth of a second."""
    return f"{database_url}{'&' if '?' in database_url else '?'}{OF_THE_ROLE}"


@pytest.fixture
def impatient(impatient_url: str, queue_name: str) -> Database:
    return Database(impatient_url, queue_name)


async def _limits(connection: Connection) -> dict[str, int]:
    found = await connection.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", (list(NAMES),))
    return {name: int(setting) for name, setting in await found.fetchall()}


@pytest.mark.parametrize("limits", [WRITING, WAITING, REPAIRING, MIGRATING])
async def test_a_session_has_the_limits_of_its_work_whatever_the_role_has(
    impatient: Database, limits: SessionLimits
) -> None:
    async with impatient.session(limits=limits) as connection:
        found = await _limits(connection)

    assert [found.pop(name) for name in NAMES[:3]] == list(limits)
    assert set(found.values()) == {0}


async def test_a_reader_has_limits_of_its_own_and_what_holds_rows_may_be_idle(
    impatient: Database, migrated: Database
) -> None:
    """Bulk replays hold rows while they talk to the store, which may take its time."""
    async with impatient, impatient.reading() as connection:
        before = await _limits(connection)
        async with connection.transaction():
            await lock_tasks(connection, [])
            holding = await _limits(connection)
        after = await _limits(connection)

    assert [before[name] for name in NAMES] == [*READING, 0, 0]
    assert holding == before | {"idle_in_transaction_session_timeout": 0}
    assert after == before


def test_every_session_of_the_service_says_which_limits_it_has() -> None:
    """The limits that are left are those of who mends: nobody who is waited for should have them unawares."""
    folders = (ROOT / name for name in ("api", "persistence", "workers", "tideq/cli"))
    texts = {str(path): path.read_text() for folder in folders for path in folder.rglob("*.py")}
    sessions = [(path, each) for path, text in texts.items() for each in SESSION.findall(text)]

    assert len(sessions) > 10
    assert [each for each in sessions if not SAYS_LIMITS.search(each[1])] == []


async def test_a_start_and_the_doctor_wait_for_locks_no_longer_than_who_waits_for_an_answer(
    migrated: Database,
    store: StoreUnderTest,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = READING._replace(lock_ms=200)
    for module in (open_store_module, checks_module):
        monkeypatch.setattr(module, "READING", short)
    settings = ServiceSettings(queue=queue_settings, history=history_settings)

    with capture_logs() as logs:
        async with migrated.session() as blocker, blocker.transaction(), asyncio.timeout(READING.lock_ms / 1000):
            await blocker.execute("LOCK TABLE side_data, parked_events")
            async with open_store(store.url, queue_settings, history_settings):
                findings = [each async for each in check_history(settings)]

    assert "format not checked" in [each["event"] for each in logs]
    assert [each.status for each in findings][-1] == "fail"
    assert "lock timeout" in findings[-1].found


async def test_history_is_written_however_little_time_its_role_gives_a_statement(
    migrated: Database,
    store: StoreUnderTest,
    queue_settings: QueueSettings,
    impatient_url: str,
    kit: Kit,
) -> None:
    await kit.submit()
    await execute(migrated, SLOW)
    settings = HistorySettings(database_url=impatient_url)

    async with open_store(store.url, queue_settings, settings) as kept, replicating(kept, store.url, kit):
        await until_replicated(kit, migrated)

    assert len(await rows(migrated, "SELECT FROM task_events")) == 1


async def test_a_batch_that_is_cancelled_is_halved_until_it_fits_and_grows_again(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicator_module, "RETRY_SECONDS", 0.01)
    for _ in range(12):
        await kit.submit()
    await execute(migrated, AT_MOST_THREE)
    sizes: list[int] = []
    monkeypatch.setattr(BatchLimit, "grow", _noting(sizes))

    await replicate_all(kept, store.url, kit, migrated)

    assert len(await rows(migrated, "SELECT FROM task_events")) == 12
    assert sizes[0] == 3
    assert max(sizes) > 3


def _noting(sizes: list[int]) -> Callable[[BatchLimit], None]:
    taken = BatchLimit.grow

    def note(portion: BatchLimit) -> None:
        sizes.append(portion.max_entries)
        taken(portion)

    return note


async def test_one_entry_that_is_cancelled_is_written_in_parts(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """A thousand tasks of one submission are one entry of the stream: no smaller batch can be read."""
    await kit.queue.submit_many([NewTask(task_type="resize")] * 10)
    await execute(migrated, AT_MOST_THREE)

    await replicate_all(kept, store.url, kit, migrated)

    assert len(await rows(migrated, "SELECT FROM task_events")) == 10
    assert await rows(migrated, "SELECT FROM parked_events") == []


def test_a_portion_halves_at_once_and_grows_slowly_to_what_it_was() -> None:
    portion = BatchLimit()

    portion.shrink(MAX_EVENTS)
    assert portion.max_entries == MAX_EVENTS // 2
    portion.shrink(1)
    assert portion.max_entries == 1

    sizes = [portion.max_entries]
    while portion.max_entries < MAX_EVENTS:
        portion.grow()
        sizes.append(portion.max_entries)
    assert all(later <= earlier * 1.1 + 1 for earlier, later in pairwise(sizes))
