"""`tideq queue`: shows, pauses and limits the queue."""

from datetime import UTC, datetime
from typing import Annotated

import cyclopts

from tideq.cli.output import show, show_one
from tideq.cli.session import LOCAL, USAGE, Service, Switch, open_client, stop
from tideq.cli.time_args import duration
from tideq.client import Client, Limit

STATS = [
    "queue.total_depth",
    "queue.by_state",
    "queue.by_priority",
    "queue.by_type",
    "queue.totals.completed",
    "queue.totals.failed",
    "queue.totals.cancelled",
    "queue.totals.dead_letter",
    "queue.totals.since",
    "queue.oldest_age_by_priority",
    "queue.oldest_age_seconds",
    "queue.p50_age_seconds",
    "queue.p95_age_seconds",
    "workers.active",
    "workers.draining",
    "workers.unhealthy",
    "workers.dead",
    "workers.total_capacity",
    "workers.used_capacity",
    "throughput.completed_last_minute",
    "throughput.failed_last_minute",
    "throughput.avg_task_duration_seconds",
    "recovery_stats.visibility_timeouts_last_hour",
    "dead_letters",
    "outbox_length",
    "due",
]
LIMITS = {
    "type": "task_type",
    "paused": "paused",
    "reason": "reason",
    "by": "paused_by",
    "resumes": "resume_at",
    "per second": "tasks_per_second",
    "at once": "max_executing",
}


def stats(*, service: Service = LOCAL) -> None:
    """Depth, ages, workers and throughput."""
    with open_client(service) as client:
        show_one(client.queue.stats(), service.output, STATS)


def pause(
    task_type: str | None = None,
    *,
    reason: str = "",
    time: Annotated[str | None, cyclopts.Parameter(name="--for")] = None,
    service: Service = LOCAL,
) -> None:
    """Stop handing out tasks, of one type or of the whole queue.

    Parameters
    ----------
    task_type
        Only this type; without it, the whole queue.
    reason
        Shown where the pause is shown.
    time
        Resume automatically after this time: 30m, 2h.
    """
    with open_client(service) as client:
        resume_at = None if time is None else datetime.now(UTC) + duration(time)
        client.queue.pause(task_type, reason=reason, resume_at=resume_at)
        show(client.queue.limits(), LIMITS, service.output)


def resume(task_type: str | None = None, *, service: Service = LOCAL) -> None:
    """Hand out tasks again.

    Parameters
    ----------
    task_type
        Only this type; without it, the pause of the whole queue ends.
    """
    with open_client(service) as client:
        client.queue.resume(task_type)
        show(client.queue.limits(), LIMITS, service.output)


def limits(
    task_type: str | None = None,
    *,
    rate: float | None = None,
    max_executing: int | None = None,
    lift: Annotated[bool, Switch] = False,
    service: Service = LOCAL,
) -> None:
    """Show pauses and limits; with options, set the limits of one type or of the whole queue.

    Parameters
    ----------
    task_type
        The type to limit; without it, the whole queue.
    rate
        Tasks a second; 0 is no limit.
    max_executing
        The most tasks at once.
    lift
        Remove both limits.
    """
    if lift and (rate is not None or max_executing is not None):
        stop("--lift removes both limits; do not combine it with --rate or --max-executing", USAGE)
    with open_client(service) as client:
        if lift:
            client.queue.set_limits(task_type)
        elif rate is not None or max_executing is not None:
            _set(client, task_type, rate, max_executing)
        show(client.queue.limits(), LIMITS, service.output)


def _set(client: Client, task_type: str | None, rate: float | None, max_executing: int | None) -> None:
    """The API sets both limits at once, so the limit not given is read first and sent again."""
    now = next((limit for limit in client.queue.limits() if limit.task_type == task_type), Limit())
    client.queue.set_limits(
        task_type,
        tasks_per_second=now.tasks_per_second if rate is None else rate,
        max_executing=now.max_executing if max_executing is None else max_executing,
    )
