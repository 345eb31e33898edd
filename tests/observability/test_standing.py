"""How history stands, as the API tells it: with PostgreSQL there, behind, away, and of another epoch."""

from tests.api.bench import until
from tests.observability.conftest import Whole
from tests.observability.scrape import scrape
from tests.stores import free_port
from tideq.cli.background_duties import replicate
from tideq.persistence.database import Database
from tideq.persistence.read.status import HistoryStatus, PartitionStatus
from tideq.queue_core.background import background_task
from tideq.queue_core.outbox.consumer import OutboxConsumer

LAG = "tideq_history_lag_seconds"


async def test_lag_is_the_age_of_what_history_does_not_have(quiet: Whole) -> None:
    service = quiet.service
    await quiet.bench.submit()
    await quiet.kit.clock.advance(100_000)
    behind = await scrape(quiet.http)

    async def has_caught_up() -> bool:
        return (await scrape(quiet.http)).value(LAG) == 0

    async with background_task(replicate(service.store, service.settings, service.duties)):
        await until(has_caught_up)
    told = await scrape(quiet.http)

    assert behind.value(LAG) >= 100
    assert (told.value("tideq_history_up"), told.value("tideq_history_parked_events")) == (1, 0)
    assert told.value("tideq_replicated_events_total") == 1
    assert told.value("tideq_store_epoch") == told.value("tideq_history_epoch")


async def test_while_history_is_away_the_lag_goes_on_growing(quiet: Whole) -> None:
    """Seen once, then gone: what the store has on top of that is known all the same."""
    kit = quiet.kit
    await quiet.bench.submit()
    watch = _watch(quiet)
    seen = await _standing(quiet, watch)
    async with Database(f"postgresql://nobody@127.0.0.1:{free_port()}/none") as nowhere:
        watch._database = nowhere  # pyright: ignore[reportPrivateUsage]
        await kit.clock.advance(60_000)

        away = await _standing(quiet, watch)

    assert (seen.is_up, away.is_up) == (True, False)
    assert (away.lag_ms or 0) >= (seen.lag_ms or 0) + 60_000


async def test_of_a_history_never_seen_nothing_is_made_up(quiet: Whole) -> None:
    async with Database(f"postgresql://nobody@127.0.0.1:{free_port()}/none") as nowhere:
        watch = PartitionStatus(nowhere, OutboxConsumer(quiet.kit.client, quiet.kit.keys), 0)

        assert await _standing(quiet, watch) == HistoryStatus(is_up=False, epoch=None, parked_count=None, lag_ms=None)


async def test_a_history_that_hangs_is_told_as_away_while_it_still_hangs(quiet: Whole) -> None:
    """And one question at a time is put to it, however often it is looked at."""
    watch, database = _watch(quiet), quiet.service.store.database
    assert database is not None
    async with database.session() as connection:
        async with connection.transaction():
            await connection.execute("LOCK TABLE parked_events IN ACCESS EXCLUSIVE MODE")
            away = [await _standing(quiet, watch) for _ in range(2)]
            asking = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'parked_events'::regclass"
            waiting = await (await connection.execute(asking)).fetchone()

        assert [each.is_up for each in away] == [False, False]
        assert waiting == (1,)
    await until(lambda: _is_up(quiet, watch))


async def _is_up(quiet: Whole, watch: PartitionStatus) -> bool:
    return (await _standing(quiet, watch)).is_up


async def test_a_history_of_another_epoch_is_told_as_that(quiet: Whole) -> None:
    database = quiet.service.store.database
    assert database is not None
    async with database.session() as connection:
        await connection.execute("UPDATE checkpoints SET epoch = epoch + 4")
        parked = "INSERT INTO parked_events (partition, epoch, entry_id, task_id, version, record, problem) "
        await connection.execute(parked + "VALUES (0, 1, '1-1', 't', 1, '', 'no')")

    told = await scrape(quiet.http)

    assert told.value("tideq_history_epoch") == told.value("tideq_store_epoch") + 4
    assert told.value("tideq_history_parked_events") == 1


async def test_a_store_in_doubt_is_told_as_that(quiet: Whole) -> None:
    custodian = quiet.service.store.guard
    assert custodian is not None
    before = await scrape(quiet.http)
    await quiet.kit.client.hset(quiet.kit.keys.key("meta"), "epoch", "999")

    told = await scrape(quiet.http)

    assert (before.value("tideq_store_unverified"), before.value("tideq_store_up")) == (0, 1)
    assert (told.value("tideq_store_unverified"), told.value("tideq_store_up")) == (1, 0)


def _watch(quiet: Whole) -> PartitionStatus:
    database = quiet.service.store.database
    assert database is not None
    return PartitionStatus(database, OutboxConsumer(quiet.kit.client, quiet.kit.keys), 0)


async def _standing(quiet: Whole, watch: PartitionStatus) -> HistoryStatus:
    now_ms = (await quiet.kit.insight.stats()).now_ms
    return await watch.read(now_ms, quiet.service.engine.scripts.epoch)
