"""Calls for the queue as a whole and for its workers."""

from collections.abc import Sequence
from datetime import datetime

from tideq.client.calls.base import Call, answers, get, instant, params, post, segment, then
from tideq.client.encoding import encode
from tideq.client.models.queue import Drained, Limit, Limits, Paused, QueueStats, WorkerInfo, WorkerPage
from tideq.client.models.tasks import Page

QUEUE = "/api/v1/queue"


def stats() -> Call[QueueStats]:
    return get(f"{QUEUE}/stats", answers(QueueStats))


def pause(task_type: str | None, reason: str, resume_at: datetime | None) -> Call[Paused]:
    fields = {
        "task_type": task_type,
        "reason": reason,
        "resume_at": None if resume_at is None else instant(resume_at),
    }
    return post(f"{QUEUE}/pause", answers(Paused), fields)


def resume(task_type: str | None) -> Call[Paused]:
    return post(f"{QUEUE}/resume", answers(Paused), {"task_type": task_type})


def limits() -> Call[tuple[Limit, ...]]:
    return get(f"{QUEUE}/limits", then(answers(Limits), lambda reply: reply.limits))


def set_limits(
    task_type: str | None, tasks_per_second: float | None, max_executing: int | None
) -> Call[tuple[Limit, ...]]:
    """Sets both limits; None removes a limit."""
    fields = {"task_type": task_type, "tasks_per_second": tasks_per_second or 0, "max_executing": max_executing}
    return Call(
        method="PUT",
        path=f"{QUEUE}/limits",
        read=then(answers(Limits), lambda reply: reply.limits),
        body=encode(fields),
    )


WORKERS = "/api/v1/workers"


def workers(status: Sequence[str], page_size: int, cursor: str | None) -> Call[Page[WorkerInfo]]:
    return get(
        WORKERS,
        then(answers(WorkerPage), lambda reply: Page(reply.workers, reply.next_cursor)),
        params(status=status, limit=page_size, cursor=cursor),
    )


def worker(worker_id: str) -> Call[WorkerInfo]:
    return get(f"{WORKERS}/{segment('worker_id', worker_id)}", answers(WorkerInfo))


def drain(worker_id: str) -> Call[Drained]:
    return post(f"{WORKERS}/{segment('worker_id', worker_id)}/drain", answers(Drained))
