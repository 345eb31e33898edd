"""The alarm: a way to die that is new, or that suddenly became frequent, is told in the log and counted."""

import structlog

from tideq.persistence.dead_letters.alerts import PatternAlert, PatternWatch
from tideq.queue_core.duties import Duties
from tideq.queue_core.samples import Counters

INTERVAL_SECONDS = 10.0
METRIC = "tideq_dead_letter_alarms_total"

log = structlog.get_logger(__name__)


async def alert_for_ever(watch: PatternWatch, duties: Duties, interval_seconds: float = INTERVAL_SECONDS) -> None:
    duties.counters.declare(METRIC, ("new",), ("surge",))

    async def sound() -> None:
        for news in await watch.news():
            _alert(news, duties.counters)

    await duties.add_periodic("alarm", interval_seconds, sound)


def _alert(news: PatternAlert, counters: Counters) -> None:
    counters.add(METRIC, "new" if news.is_new else "surge")
    log.warning(
        "tasks die in a new way" if news.is_new else "many more tasks die in this way",
        pattern=news.pattern,
        task_type=news.task_type,
        reason=news.reason,
        message=news.message,
        deaths=news.death_count,
        told_before=news.told_count,
    )
