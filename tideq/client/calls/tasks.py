"""Calls for a single task, and the cleanup."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from tideq.client.calls.base import Call, answers, get, instant, params, post, segment
from tideq.client.calls.submission import TASKS
from tideq.client.errors import Conflict, NotFound, Refusal
from tideq.client.models.tasks import DONE, Cancelled, CleanedUp, Explanation, Purged, Retried, Task

LONG_SECONDS = 600.0
"""Added to the read timeout of calls that change many tasks."""


def read(task_id: str, *, history: bool) -> Call[Task]:
    return get(_path(task_id), answers(Task), params(include_history=True if history else None))


def wait(task_id: str, seconds: float) -> Call[Task]:
    return get(f"{_path(task_id)}/wait", answers(Task), params(timeout_seconds=seconds), waits_seconds=seconds)


def explain(task_id: str) -> Call[Explanation]:
    return get(f"{_path(task_id)}/explain", answers(Explanation))


def cancel(task_id: str) -> Call[Cancelled]:
    def result_of(refusal: Refusal) -> Cancelled | None:
        is_cancelled = isinstance(refusal, Conflict) and refusal.state == "cancelled"
        return Cancelled(task_id=task_id) if is_cancelled else None

    return Call(method="DELETE", path=_path(task_id), read=answers(Cancelled), result_of_refusal=result_of)


def purge(task_id: str) -> Call[Purged]:
    def result_of(refusal: Refusal) -> Purged | None:
        return Purged(task_id=task_id) if isinstance(refusal, NotFound) else None

    return Call(
        method="DELETE",
        path=_path(task_id),
        read=answers(Purged),
        params=params(purge=True),
        result_of_refusal=result_of,
    )


def retry(task_id: str, *, reset_retry_count: bool, new_priority: str | None) -> Call[Retried]:
    return requeue(f"{_path(task_id)}/retry", task_id, reset_retry_count, new_priority)


def requeue(path: str, task_id: str, reset_retry_count: bool, new_priority: str | None) -> Call[Retried]:
    """A retry or a replay. A live task counts as requeued, perhaps by an attempt whose response was lost."""

    def result_of(refusal: Refusal) -> Retried | None:
        is_live = isinstance(refusal, Conflict) and refusal.state not in {"", *DONE}
        return Retried(task_id=task_id, status=refusal.problem.state) if is_live else None

    fields = {"reset_retry_count": reset_retry_count, "new_priority": new_priority}
    return post(path, answers(Retried), fields, result_of_refusal=result_of)


def clean_up(older_than: datetime | timedelta, status: Sequence[str], task_type: str | None) -> Call[CleanedUp]:
    """Not repeatable: a second response would count only the remaining tasks. An age uses the service's clock."""
    before = f"{older_than.total_seconds():.3f}s" if isinstance(older_than, timedelta) else instant(older_than)
    return Call(
        method="DELETE",
        path=TASKS,
        read=answers(CleanedUp),
        params=params(older_than=before, status=status, task_type=task_type),
        waits_seconds=LONG_SECONDS,
        is_repeatable=False,
    )


def _path(task_id: str) -> str:
    return f"{TASKS}/{segment('task_id', task_id)}"
