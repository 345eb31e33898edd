"""What is counted as ended equals history: after anything that happens to tasks, to the store and to history itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.contract.situations import ended_types
from tests.history.load import BUSY, WORKERS, Load
from tests.history.situations import forget_everything, replicating, rows, until
from tests.history.witness import Ledger
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.dead_letters.dead_letter_list import DeadLetterFilter
from tideq.persistence.history import History
from tideq.persistence.recount import EVERY_MS, Recount, RecountPostponed
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.background import background_task
from tideq.queue_core.duties import Duties
from tideq.queue_core.errors import Unavailable, UnknownWorker, WorkerExists
from tideq.queue_core.partition import Removed
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreClock
from tideq.queue_core.store.ended_tasks import MOST_KINDS, Kind
from tideq.queue_core.transitions import TERMINAL
from tideq.workers.monitor.recounter import recount_for_ever

ENDS = 300
MANY_TYPES = 1_000
WORKER_NAMES = [f"w{number}" for number in range(WORKERS)]
PATIENCE_SECONDS = 60
DAY_MS = 86_400_000
UNWRITABLE = b'"\0"'


@pytest.fixture(params=[1, 4], ids=["one_partition", "four_partitions"])
def settings(request: pytest.FixtureRequest) -> QueueSettings:
    count: int = request.param
    return QueueSettings(partitions=(count,), leases=BUSY.leases, retention=BUSY.retention, backoff=BUSY.backoff)


@pytest.fixture
async def kit(kept: OpenStore, queue_settings: QueueSettings) -> AsyncIterator[Kit]:
    clock = StoreClock(kept.client, *(part.keys for part in kept.engine.parts))
    kit = Kit(kept.client, queue_settings, kept.engine.keys, kept.engine, clock)
    yield kit
    await kit.assert_sound()


@pytest.fixture
def archive(
    kept: OpenStore, migrated: Database, queue_settings: QueueSettings, history_settings: HistorySettings
) -> History:
    return History(migrated, kept.engine, kept.client, queue_settings, history_settings)


@pytest.fixture
def recount(kept: OpenStore, migrated: Database) -> Recount:
    return Recount(migrated, kept.client, kept.engine)


@pytest.fixture
async def replicated(kit: Kit, kept: OpenStore, store: StoreUnderTest) -> AsyncIterator[None]:
    async with replicating(kept, store.url, kit):
        yield


async def in_store(kit: Kit) -> dict[Kind, int]:
    counted = (await kit.insight.stats()).counted
    return {(task_type, state): count for (task_type, state), count in counted.items() if state in TERMINAL}


async def in_history(database: Database, archive: History) -> dict[Kind, int]:
    """Once it has everything."""
    assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
    query = "SELECT task_type, state, count(*) FROM tasks WHERE ended_at IS NOT NULL GROUP BY task_type, state"
    return {(task_type, state): count for task_type, state, count in await rows(database, query)}


async def under_load(kit: Kit, seed: int) -> None:
    """Everything that can happen to tasks, until so many have ended."""
    load = Load(kit, Ledger(), seed)
    before = sum((await in_store(kit)).values())

    async def have_ended() -> bool:
        return sum((await in_store(kit)).values()) >= before + ENDS

    for worker_id in WORKER_NAMES:
        with contextlib.suppress(UnknownWorker):
            await kit.fleet.remove(worker_id)
    async with load.running():
        await until(have_ended)


async def recounted(recount: Recount) -> dict[Kind, int]:
    """As soon as it is possible."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await recount.run()
            except RecountPostponed:
                await asyncio.sleep(0.02)


async def until_whole(kit: Kit) -> None:
    """Every partition is open again."""

    async def is_whole() -> bool:
        with contextlib.suppress(Unavailable):
            for part in kit.engine.parts:
                await part.insight.stats()
            return True
        return False

    await until(is_whole)


async def ended(kit: Kit, verdict: str, count: int = 1, task_type: str = "resize") -> list[str]:
    """Tasks that ended like this."""
    with contextlib.suppress(WorkerExists):
        await kit.worker("hand")
    task_ids: list[str] = []
    for _ in range(count):
        task_ids.append(await kit.submit(task_type))
        task = await kit.started("hand")
        await (kit.complete(task, "hand") if verdict == "complete" else kit.fail(task, "hand", verdict=verdict))
    return task_ids


async def until_forgotten(kit: Kit, task_ids: list[str]) -> None:
    async def is_gone() -> bool:
        await kit.queue.sweep()
        return not any(await kit.queue.read_many(task_ids))

    await until(is_gone)


@pytest.mark.usefixtures("replicated")
async def test_the_counts_are_historys_whatever_happens_to_tasks(
    kit: Kit, archive: History, migrated: Database
) -> None:
    """Nobody recounts: the scripts alone count right, through retries, purges and tasks that left the store."""
    await under_load(kit, seed=1)

    counted = await in_store(kit)
    assert counted == await in_history(migrated, archive)
    assert {state for _, state in counted} == TERMINAL


@pytest.mark.usefixtures("replicated")
async def test_a_recount_amid_work_finds_no_difference(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    """What the outbox has yet to tell history is reckoned in, and what ends meanwhile is counted all the same."""
    differences: list[dict[Kind, int]] = []

    async def recount_again_and_again() -> None:
        while True:
            differences.append(await recounted(recount))

    async with background_task(recount_again_and_again()):
        await under_load(kit, seed=2)

    assert len(differences) > 3
    assert not any(differences)
    assert await in_store(kit) == await in_history(migrated, archive)


@pytest.mark.usefixtures("replicated")
async def test_a_store_that_was_emptied_counts_as_before(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    await under_load(kit, seed=3)
    await recounted(recount)
    assert not await recount.is_due()
    before = await in_history(migrated, archive)
    await forget_everything(kit)
    await until_whole(kit)

    assert await recount.is_due()
    await recounted(recount)

    assert await in_store(kit) == await in_history(migrated, archive)
    assert (await in_history(migrated, archive)).keys() >= before.keys()
    assert not await recount.is_due()
    await under_load(kit, seed=4)
    assert await in_store(kit) == await in_history(migrated, archive)


@pytest.mark.usefixtures("replicated")
async def test_what_history_removes_after_the_store_forgot_it_is_not_counted(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    done, dead = await ended(kit, "complete", 3), await ended(kit, "discard", 2, "crop")
    assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
    await until_forgotten(kit, done + dead)
    await recounted(recount)

    removed = await archive.cleanup.remove([done[0], dead[0], dead[0]])

    assert removed == 2
    assert await in_store(kit) == {("resize", "completed"): 2, ("crop", "dead_letter"): 1}
    assert await in_history(migrated, archive) == await in_store(kit)
    assert await recounted(recount) == {}


@pytest.mark.usefixtures("replicated")
async def test_what_comes_back_from_history_is_not_counted(kit: Kit, archive: History, migrated: Database) -> None:
    dead, failed = await ended(kit, "discard", 3), await ended(kit, "fail", 2)
    assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
    await until_forgotten(kit, dead + failed)

    assert (await archive.replays.run(DeadLetterFilter())).replayed == 3
    async with archive.expired.locked(failed[0]) as held:
        await kit.queue.retry(failed[0], kept=held)

    assert await in_store(kit) == {("resize", "failed"): 1}
    assert await in_history(migrated, archive) == await in_store(kit)


@pytest.mark.usefixtures("replicated")
async def test_dropped_partitions_go_on_being_counted(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    await ended(kit, "complete", 3)
    await ended(kit, "fail", 1, "crop")
    assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
    before = await in_store(kit)
    partitions = Partitions(migrated, HistorySettings(retention_ms=1))
    clocks = await partitions.clocks(0)
    later = clocks.database_ms + 60 * DAY_MS

    dropped = await partitions.prune(clocks._replace(database_ms=later, process_ms=later), 0)

    assert dropped
    assert await in_history(migrated, archive) == {}
    assert await recounted(recount) == {}
    assert await in_store(kit) == before == {("resize", "completed"): 3, ("crop", "failed"): 1}


@pytest.mark.usefixtures("replicated")
async def test_tasks_that_an_earlier_version_ended_are_counted_by_the_next_recount(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    """It counts nothing: as if these counts had never been."""
    await ended(kit, "complete", 3)
    await recounted(recount)
    await kit.client.hincrby(kit.keys.key("ended"), "resize completed", -2)
    assert not await recount.is_due()

    await kit.clock.advance(EVERY_MS + 1)

    assert await recount.is_due()
    assert await recounted(recount) == {("resize", "completed"): 2}
    assert await in_store(kit) == await in_history(migrated, archive)


@pytest.mark.usefixtures("replicated")
async def test_of_more_types_than_are_counted_by_name_the_most_frequent_are_and_totals_are_historys(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    await kit.worker()
    await ended_types(kit, MANY_TYPES)
    await ended(kit, "complete", 5, "zebra")
    by_scripts, known = await in_store(kit), await in_history(migrated, archive)

    await recounted(recount)

    by_name = await in_store(kit)
    assert sum(by_scripts.values()) == sum(by_name.values()) == sum(known.values()) == MANY_TYPES + 5
    assert by_name["zebra", "completed"] == 5
    assert len({kind for kind, count in by_name.items() if count}) == MOST_KINDS + 1
    assert await recounted(recount) == {}
    assert {kind: count for kind, count in (await in_store(kit)).items() if count} == {
        kind: count for kind, count in by_name.items() if count
    }


@pytest.mark.usefixtures("replicated")
async def test_a_store_that_named_more_types_than_are_counted_is_brought_within_bounds_by_a_recount(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    """As a process that knew no bound left it."""
    await ended(kit, "complete", 3)
    assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
    beyond = {f"type-{number} completed": 1 for number in range(MANY_TYPES)}
    await kit.client.hset(kit.keys.key("ended"), mapping=beyond)

    await recounted(recount)

    assert {kind: count for kind, count in (await in_store(kit)).items() if count} == {("resize", "completed"): 3}
    for part in kit.engine.parts:
        assert await kit.client.hlen(part.keys.key("ended")) <= MOST_KINDS + 8


async def test_to_see_whether_a_recount_is_due_reads_no_counts(kit: Kit, kept: OpenStore, recount: Recount) -> None:
    """It is looked at every few seconds."""
    await ended(kit, "complete")
    before = await kit.client.info("commandstats")

    assert await recount.is_due()

    after = await kit.client.info("commandstats")
    read = {name for name in after if after[name]["calls"] > before.get(name, {"calls": 0})["calls"]}
    assert read & {"cmdstat_hgetall", "cmdstat_xrange"} == set()
    assert "cmdstat_hmget" in read


async def test_a_recount_waits_until_history_follows_the_store(
    kit: Kit, kept: OpenStore, store: StoreUnderTest, recount: Recount, migrated: Database
) -> None:
    await ended(kit, "complete", 3)
    for part in kit.engine.parts:
        await kit.client.xtrim(part.keys.key("outbox"), maxlen=0, approximate=False)

    with pytest.raises(RecountPostponed, match="too far behind"):
        await recount.run()

    assert await in_store(kit) == {("resize", "completed"): 3}


async def test_a_recount_reckons_with_what_history_has_not_heard_of(
    kit: Kit, kept: OpenStore, store: StoreUnderTest, archive: History, recount: Recount
) -> None:
    """History still has them as failed; nobody replicates what became of them."""
    async with replicating(kept, store.url, kit):
        again, gone, _ = await ended(kit, "fail", 3)
        assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
    await kit.queue.retry(again)
    await kit.queue.purge(gone)
    await ended(kit, "complete")

    assert await recounted(recount) == {}

    assert await in_store(kit) == {("resize", "completed"): 1, ("resize", "failed"): 1}


@pytest.mark.usefixtures("replicated")
async def test_a_store_that_lost_its_last_writes_is_recounted(
    kit: Kit, kept: OpenStore, archive: History, migrated: Database, recount: Recount
) -> None:
    """It counts less than it did, and says it was set right a moment ago."""
    await ended(kit, "complete", 3)
    assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
    await recounted(recount)
    (part, *_) = [part for part in kit.engine.parts if await kit.client.hlen(part.keys.key("ended")) > 2]
    await kit.client.hincrby(part.keys.key("ended"), "resize completed", -1)
    assert not await recount.is_due()

    assert kept.guard is not None
    await kept.guard.reconcile()
    await until_whole(kit)

    assert await recount.is_due()
    assert await recounted(recount) == {("resize", "completed"): 1}
    assert await in_store(kit) == await in_history(migrated, archive)


@pytest.mark.usefixtures("replicated")
async def test_what_is_parked_is_counted_as_the_store_tells_it(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    """History's row of such a task is behind: to go by it would uncount the task."""
    await kit.worker()
    await kit.submit()
    await kit.complete(await kit.started(), result=UNWRITABLE)
    assert await in_history(migrated, archive) == {}
    assert len(await rows(migrated, "SELECT FROM parked_events")) == 1

    assert await recounted(recount) == {}

    assert await in_store(kit) == {("resize", "completed"): 1}


@pytest.mark.usefixtures("replicated")
async def test_a_recount_waits_for_a_removal_that_is_under_way(
    kit: Kit, archive: History, migrated: Database, recount: Recount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gone from history and not yet from the counts, the task would be uncounted twice."""
    done = await ended(kit, "complete", 2)
    assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
    await until_forgotten(kit, done)
    is_deleted, may_go_on, forget = asyncio.Event(), asyncio.Event(), kit.queue.forget_many

    async def forget_later(removed: Sequence[Removed]) -> None:
        is_deleted.set()
        await may_go_on.wait()
        await forget(removed)

    monkeypatch.setattr(kit.queue, "forget_many", forget_later)
    removing = asyncio.create_task(archive.cleanup.remove(done[:1]))
    await is_deleted.wait()
    recounting = asyncio.create_task(recounted(recount))
    await until(lambda: rows(migrated, "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
    may_go_on.set()

    assert (await removing, await recounting) == (1, {})
    assert await in_store(kit) == {("resize", "completed"): 1}


@pytest.mark.usefixtures("replicated")
async def test_the_monitor_recounts_by_itself_when_it_is_due(
    kit: Kit, archive: History, migrated: Database, recount: Recount
) -> None:
    await ended(kit, "complete", 3)
    before = await in_history(migrated, archive)
    await forget_everything(kit)
    await until_whole(kit)

    async def is_right() -> bool:
        return await in_store(kit) == before

    async with background_task(recount_for_ever(recount, Duties(), look_seconds=0.01)):
        await until(is_right)
        await forget_everything(kit)
        await until_whole(kit)
        await until(is_right)

    assert await in_store(kit) == await in_history(migrated, archive)
    assert (await kit.insight.stats()).counted_since_ms is None
