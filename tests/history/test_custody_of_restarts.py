"""Servers that restart, lose what they had or are away: who is served, and when. On servers of the module's own."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.contract.situations import complete_all, started_count, submit_count
from tests.history.conftest import kit_on
from tests.history.servers import Server, own_postgres, own_valkey
from tests.history.situations import replicate_all, until_open, until_somebody_waits_for
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.attempts import LeaseRef, Success
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import WorkerDeclaration

Opened = contextlib.AbstractAsyncContextManager[Kit]
CALLS: dict[str, Callable[[Kit], Awaitable[object]]] = {
    "submit": lambda kit: kit.submit(),
    "claim": lambda kit: kit.queue.claim("w1"),
    "start": lambda kit: kit.attempts.start("w1", [LeaseRef(ID, "1-x-1")]),
    "complete": lambda kit: kit.attempts.complete("w1", [Success(ID, "1-x-1")]),
    "cancel": lambda kit: kit.queue.cancel(ID),
    "purge": lambda kit: kit.queue.purge(ID),
    "read": lambda kit: kit.read(ID),
    "sweep": lambda kit: kit.queue.sweep(),
    "acknowledge": lambda kit: kit.engine.partition.acknowledge("5-0", []),
    "register": lambda kit: kit.fleet.register(WorkerDeclaration(worker_id="w9")),
    "heartbeat": lambda kit: kit.fleet.heartbeat("w1"),
    "pause": lambda kit: kit.controls.pause(),
    "stats": lambda kit: kit.insight.stats(),
}
ID = "01890000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with own_postgres(tmp_path_factory.mktemp("custody") / "postgres") as server:
        yield server


@pytest.fixture
def history_settings(postgres: Server) -> HistorySettings:
    postgres.start()
    return HistorySettings(database_url=postgres.database_url)


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    with own_valkey(tmp_path / "valkey") as server:
        yield server


@pytest.fixture
def store(valkey: Server) -> StoreUnderTest:
    return StoreUnderTest("valkey", valkey.redis_url)


@pytest.fixture
def open_another(
    store: StoreUnderTest, queue_settings: QueueSettings, history_settings: HistorySettings
) -> Callable[[], Opened]:
    """A process that starts now."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncGenerator[Kit]:
        async with open_store(store.url, queue_settings, history_settings) as kept:
            yield kit_on(kept, queue_settings)

    return opened


async def test_a_store_restarted_with_all_its_data_opens_by_itself_in_the_same_epoch(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, valkey: Server
) -> None:
    ids = await submit_count(kit, 5)
    await replicate_all(kept, store.url, kit, migrated)
    (unreplicated,) = await submit_count(kit, 1)
    valkey.kill()
    valkey.start()

    with capture_logs() as logs:
        await until_open(kit)

    assert kit.engine.scripts.epoch == "1"
    assert all(await kit.queue.read_many([*ids, unreplicated]))
    assert [each["check"] for each in logs if each["event"] == "store verified"] == ["IN_SYNC"]


async def test_nobody_is_served_by_a_restarted_store_while_history_is_away(
    kit: Kit, postgres: Server, valkey: Server, open_another: Callable[[], Opened]
) -> None:
    postgres.stop()
    valkey.kill()
    valkey.start()

    async with open_another() as other:
        await refuses_everything(kit)
        await refuses_everything(other)
        postgres.start()
        await until_open(kit)
        await until_open(other)


async def test_an_empty_store_stays_closed_while_history_is_away_and_is_rebuilt_when_it_is_back(
    kit: Kit,
    kept: OpenStore,
    migrated: Database,
    store: StoreUnderTest,
    postgres: Server,
    open_another: Callable[[], Opened],
) -> None:
    ids = await submit_count(kit, 5)
    await replicate_all(kept, store.url, kit, migrated)
    postgres.stop()
    await kit.client.flushall()

    async with open_another() as other:
        await refuses_everything(kit)
        await refuses_everything(other)
        assert await kept.unguarded_client.dbsize() == 0
        postgres.start()
        await until_open(kit)
        await until_open(other)

    assert kit.engine.scripts.epoch == "2"
    assert all(await kit.queue.read_many(ids))


async def test_a_store_that_did_not_change_goes_on_without_history_also_for_who_starts_now(
    kit: Kit, postgres: Server, open_another: Callable[[], Opened]
) -> None:
    await submit_count(kit, 3)
    postgres.stop()

    async with open_another() as other:
        await other.worker()
        await complete_all(other, await started_count(other, 1))
        await submit_count(kit, 1)
    postgres.start()

    assert kit.engine.scripts.epoch == "1"


async def test_a_store_that_restarts_while_it_is_compared_is_compared_again(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, valkey: Server
) -> None:
    """Held between looking at the store and looking at history, while the store loses its last writes."""
    assert kept.guard is not None
    copy = valkey.copy()
    ids = await submit_count(kit, 5)
    await replicate_all(kept, store.url, kit, migrated)

    async with migrated.session() as blocker:
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE checkpoints IN ACCESS EXCLUSIVE MODE")
            settling = asyncio.create_task(kept.guard.verify())
            await until_somebody_waits_for(migrated, "checkpoints")
            valkey.go_back_to(copy)
        with contextlib.suppress(Unavailable):
            await settling
    await until_open(kit)

    assert all(await kit.queue.read_many(ids))


async def test_a_store_that_loses_writes_while_it_is_rebuilt_is_rebuilt_again(
    kit: Kit,
    kept: OpenStore,
    migrated: Database,
    store: StoreUnderTest,
    valkey: Server,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
) -> None:
    """The last tasks to be put back are lost with a fail-over that the rebuild itself does not feel."""
    ids = [task_id for _ in range(3) for task_id in await submit_count(kit, 500)]
    await replicate_all(kept, store.url, kit, migrated)
    copies: list[Path] = []

    def fail_over(done: int, total: int) -> None:
        if not copies:
            copies.append(valkey.copy())
        elif done == total and len(copies) == 1:
            copies.append(copies[0])
            valkey.go_back_to(copies[0])

    await kit.client.flushall()
    async with open_store(store.url, queue_settings, history_settings, fail_over):
        await until_open(kit)

    assert len(copies) == 2
    assert all(await kit.queue.read_many(ids[:1_000]) + await kit.queue.read_many(ids[1_000:]))


async def refuses_everything(kit: Kit) -> None:
    for call in CALLS.values():
        with pytest.raises(Unavailable):
            await call(kit)
