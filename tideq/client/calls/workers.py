"""Calls for the fleet."""

from collections.abc import Sequence

from tideq.client.calls.base import Call, answers, get, params, post, segment, then
from tideq.client.models.fleet import Drained, WorkerInfo, WorkerPage
from tideq.client.models.pages import Page

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
