"""Dead-letter alerts: logs and counts patterns that are new or suddenly frequent."""

import structlog

from tideq.persistence.dead_letters.alerts import PatternAlert, PatternAlerts
from tideq.queue_core.duties import Duties
from tideq.queue_core.samples import Counters

INTERVAL_SECONDS = 10.0
METRIC = "tideq_dead_letter_alarms_total"

log = structlog.get_logger(__name__)


async def alert_for_ever(watch: PatternAlerts, duties: Duties, interval_seconds: float = INTERVAL_SECONDS) -> None:
    duties.counters.declare(METRIC, ("new",), ("surge",))

    async def raise_alerts() -> None:
        for alert in await watch.take_new():
            _raise_alert(alert, duties.counters)

    await duties.add_periodic("alarm", interval_seconds, raise_alerts)


def _raise_alert(alert: PatternAlert, counters: Counters) -> None:
    counters.add(METRIC, "new" if alert.is_new else "surge")
    log.warning(
        "dead-letter pattern appeared" if alert.is_new else "dead-letter pattern surged",
        pattern=alert.pattern,
        task_type=alert.task_type,
        reason=alert.reason,
        message=alert.message,
        death_count=alert.death_count,
        alerted_count=alert.alerted_count,
    )
