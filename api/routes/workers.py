"""Workers for operators: list, read, drain."""

import base64
import binascii
from typing import Annotated, Any

from litestar import Request, Response, Router, get, post
from litestar.params import FromPath, QueryParameter

from tideq.api.edge.auth import Caller
from tideq.api.edge.paging import LINK, next_link
from tideq.api.edge.problems import UnprocessableContent
from tideq.api.edge.responses import json_response
from tideq.api.operations import link_to, operation
from tideq.api.schemas.fleet import DrainOut, WorkerOut, WorkersOut, WorkerStatus, worker_out
from tideq.api.service import InjectedService
from tideq.queue_core.errors import UnknownWorker
from tideq.queue_core.fleet import LISTED_TASKS, MAX_PAGE
from tideq.queue_core.name_rules import NAME

Http = Request[Caller, Any, Any]


@get(
    "/",
    opt=operation(
        "viewer",
        answer=WorkersOut,
        refuses=(UnprocessableContent,),
        answer_headers=(LINK,),
        links=link_to("workers_drain", "workers_worker", worker_id="/workers/0/worker_id"),
    ),
)
async def workers(
    request: Http,
    service: InjectedService,
    status_filter: Annotated[
        list[WorkerStatus] | None,
        QueryParameter(name="status", description="Only workers in this status; may be repeated."),
    ] = None,
    limit: Annotated[
        int, QueryParameter(name="limit", ge=1, le=MAX_PAGE, description="Largest number on a page.")
    ] = 100,
    cursor: Annotated[
        str | None, QueryParameter(name="cursor", max_length=100, description="`next_cursor` of the previous page.")
    ] = None,
) -> Response[bytes]:
    """List workers, including those that died within the last hour. A page may be short and still have a next one."""
    page = await service.engine.fleet.members(
        status_filter or (), after=_after(cursor), limit=limit, most_tasks=LISTED_TASKS
    )
    timeout_ms = service.settings.queue.leases.heartbeat_timeout_ms
    found = [worker_out(member, timeout_ms) for member in page.members]
    next_cursor = _cursor(page.next_after) if page.next_after else None
    return json_response(WorkersOut(workers=found, next_cursor=next_cursor), headers=next_link(request, next_cursor))


@get("/{worker_id:str}", opt=operation("viewer", answer=WorkerOut, refuses=(UnknownWorker,)))
async def worker(worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Read one worker with the tasks it holds. Workers that died within the last hour can be read too."""
    member = await service.engine.fleet.get(worker_id)
    return json_response(worker_out(member, service.settings.queue.leases.heartbeat_timeout_ms))


@post("/{worker_id:str}/drain", status_code=200, opt=operation(answer=DrainOut, refuses=(UnknownWorker,)))
async def drain(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Drain a worker. It gets no new tasks, is notified with its next call, finishes its tasks and deregisters."""
    await service.engine.fleet.drain(worker_id)
    await service.audit.note(request.user.name, "drain", worker_id)
    return json_response(DrainOut(worker_id=worker_id, status="draining"))


def _cursor(worker_id: str) -> str:
    return base64.urlsafe_b64encode(worker_id.encode()).decode()


def _after(cursor: str | None) -> str:
    if not cursor:
        return ""
    try:
        worker_id = base64.urlsafe_b64decode(cursor.encode()).decode()
    except (binascii.Error, ValueError) as error:
        raise UnprocessableContent("cursor: not valid; use the `next_cursor` of the previous page") from error
    if not NAME.fullmatch(worker_id):
        raise UnprocessableContent("cursor: not valid; use the `next_cursor` of the previous page")
    return worker_id


router = Router("/api/v1/workers", route_handlers=[workers, worker, drain])
