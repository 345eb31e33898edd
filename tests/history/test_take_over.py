"""A replica takes over while the old primary still runs and somebody still trusts it: history follows one of them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.situations import submit_count
from tests.history.conftest import kit_on
from tests.history.servers import Server
from tests.history.situations import replicate_all, replicating, rows, until
from tests.kit import Kit
from tests.stores import StoreUnderTest, free_port
from tideq.embedded import ValkeyOptions, bundled_valkey
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.durability import Durability
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.connect import connect
from tideq.queue_core.store.replica_wait import ReplicaWait

IDS = "SELECT task_id::text FROM tasks"
WAIT_MS = 10_000


class Pair:
    """A primary and its replica, which takes over when told to."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        options = ValkeyOptions(binary=bundled_valkey(), port=port, flags=("--repl-diskless-sync-delay", "0"))
        follows = ValkeyOptions(binary=bundled_valkey(), flags=("--replicaof", f"127.0.0.1 {port}"))
        self.primary = Server(folder / "primary", valkey=options, postgres=None)
        self.replica = Server(folder / "replica", valkey=follows, postgres=None)

    async def promote(self) -> None:
        """The link is cut first: nothing that happens on the primary from now on is known here."""
        client = connect(self.replica.redis_url)
        await client.execute_command("REPLICAOF", "NO", "ONE")
        await client.aclose()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    pair.primary.start()
    pair.replica.start()
    yield pair
    pair.replica.stop()
    pair.primary.stop()


@pytest.fixture
def store(pair: Pair) -> StoreUnderTest:
    return StoreUnderTest("valkey", pair.primary.redis_url)


@pytest.fixture
async def known(kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest) -> str:
    """A task that the replica and history have."""
    (task_id,) = await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)
    await until_replica_has_all(kit.client)
    return task_id


@pytest.fixture
async def taken(
    pair: Pair, known: str, queue_settings: QueueSettings, history_settings: HistorySettings
) -> AsyncIterator[OpenStore]:
    """The replica after it took over, as a process sees it that was told so."""
    await pair.promote()
    async with open_store(pair.replica.redis_url, queue_settings, history_settings) as taken:
        yield taken


async def until_replica_has_all(client: Any) -> None:
    async def has_all() -> bool:
        await client.set("mark", 1)
        return await client.execute_command("WAIT", 1, WAIT_MS) == 1

    await until(has_all)


async def test_a_server_that_takes_over_begins_a_new_epoch_with_all_it_has(
    taken: OpenStore, known: str, queue_settings: QueueSettings
) -> None:
    assert taken.engine.scripts.epoch == "2"
    assert (await kit_on(taken, queue_settings).read(known)).task_id == known


async def test_a_server_that_takes_over_with_its_memory_full_is_opened_all_the_same(
    pair: Pair, known: str, queue_settings: QueueSettings, history_settings: HistorySettings
) -> None:
    """Or nobody could work off what fills it."""
    await pair.promote()
    client = connect(pair.replica.redis_url)
    await client.config_set("maxmemory", 1)

    async with open_store(pair.replica.redis_url, queue_settings, history_settings) as taken:
        assert taken.engine.scripts.epoch == "2"
    await client.aclose()


async def test_a_worker_is_not_given_up_for_heartbeats_that_the_new_server_never_heard(
    kit: Kit, pair: Pair, known: str, queue_settings: QueueSettings, history_settings: HistorySettings
) -> None:
    """Its deadline there is nearly over; from now on it has all of its time."""
    await kit.worker("w1")
    await kit.client.zadd(kit.keys.key("workers"), {"w1": 1})
    await until_replica_has_all(kit.client)
    await pair.promote()

    async with open_store(pair.replica.redis_url, queue_settings, history_settings) as taken:
        due_ms = await taken.client.zscore(kit.keys.key("workers"), "w1")
        seconds, _ = await taken.client.time()

    assert due_ms > seconds * 1000
    await kit.client.zadd(kit.keys.key("workers"), {"w1": due_ms})


async def test_what_an_old_primary_accepts_after_it_was_replaced_does_not_become_history(
    kit: Kit, kept: OpenStore, taken: OpenStore, pair: Pair, known: str, store: StoreUnderTest, migrated: Database
) -> None:
    """Nor does it keep from history what the new one accepts, whichever comes first."""
    (stray,) = await submit_count(kit, 1)
    (fresh,) = await submit_count(kit_on(taken, kit.settings), 1)

    async with (
        replicating(kept, store.url, kit),
        replicating(taken, pair.replica.redis_url, kit_on(taken, kit.settings)),
    ):
        await until(lambda: is_known(migrated, fresh))
        (later,) = await submit_count(kit, 1)
        (last,) = await submit_count(kit_on(taken, kit.settings), 1)
        await until(lambda: is_known(migrated, last))

    assert {row[0] for row in await rows(migrated, IDS)} == {known, fresh, last}
    assert {stray, later} & {known, fresh, last} == set()


async def is_known(database: Database, task_id: str) -> bool:
    return (task_id,) in await rows(database, IDS)


async def test_what_the_old_primary_told_history_before_it_was_replaced_is_put_back(
    kit: Kit,
    kept: OpenStore,
    pair: Pair,
    known: str,
    store: StoreUnderTest,
    migrated: Database,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
) -> None:
    await pair.promote()
    (told,) = await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)

    async with open_store(pair.replica.redis_url, queue_settings, history_settings) as taken:
        assert {task.task_id for task in await kit_on(taken, kit.settings).queue.read_many([known, told]) if task} == {
            known,
            told,
        }


async def test_a_task_that_the_server_does_not_have_is_not_called_safe_there(
    kit: Kit, taken: OpenStore, known: str
) -> None:
    """It was written to a server that has been replaced since: the new one has nothing to copy."""
    (stray,) = await submit_count(kit, 1)
    assurance = ReplicaWait(taken.client, [kit.keys], Routing((1,)))

    assert not await assurance.wait_for_copies(Durability.DISK, WAIT_MS, [stray])
    assert await assurance.wait_for_copies(Durability.DISK, WAIT_MS, [known])
