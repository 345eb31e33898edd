"""New and growing ways to die are told once, however many monitors look."""

import asyncio
import time

from tideq.persistence.database import Database, statement
from tideq.persistence.dead_letters.alerts import SURGE_COUNT, PatternAlerts
from tideq.queue_core.background import background_task
from tideq.queue_core.duties import Duties
from tideq.queue_core.samples import Counters
from tideq.workers.monitor.dead_letter_alerts import METRIC, alert_for_ever


async def die(database: Database, pattern: str, deaths: int) -> None:
    now_ms = time.time_ns() // 1_000_000
    row = [[pattern], ["resize"], ["poison"], ["no <n>"], [now_ms], [now_ms], [deaths]]
    async with database.session() as connection:
        await connection.execute(statement("count_patterns"), row)


async def test_a_new_pattern_is_told_once(migrated: Database) -> None:
    await die(migrated, "a", 1)
    watches = [PatternAlerts(migrated) for _ in range(5)]

    told = [news for each in await asyncio.gather(*(watch.take_new() for watch in watches)) for news in each]

    assert [(news.pattern, news.is_new, news.death_count) for news in told] == [("a", True, 1)]
    assert await watches[0].take_new() == []


async def test_a_pattern_is_told_again_once_it_has_doubled_and_is_many(migrated: Database) -> None:
    watch = PatternAlerts(migrated)
    await die(migrated, "a", 2)
    await watch.take_new()

    await die(migrated, "a", SURGE_COUNT - 1)
    assert await watch.take_new() == []
    await die(migrated, "a", 1)
    (news,) = await watch.take_new()
    assert (news.is_new, news.alerted_count, news.death_count) == (False, 2, 2 + SURGE_COUNT)

    await die(migrated, "a", SURGE_COUNT)
    assert await watch.take_new() == [], "not doubled yet"
    await die(migrated, "a", 2)
    assert len(await watch.take_new()) == 1


async def test_the_alarm_counts_what_it_tells(migrated: Database) -> None:
    duties = Duties()
    counters = duties.counters
    await die(migrated, "a", 1)
    await die(migrated, "b", 40)

    async with background_task(alert_for_ever(PatternAlerts(migrated), duties, interval_seconds=0.01)):
        await _until(counters, "new", 2)
        await die(migrated, "b", 40)
        await _until(counters, "surge", 1)


async def _until(counters: Counters, kind: str, count: int) -> None:
    async with asyncio.timeout(90):
        while counters.samples("p").get(METRIC, {}).get(("p", kind)) != count:
            await asyncio.sleep(0.01)
