"""Tasks of any age: listing, searching, cleaning up. Served beside the calls of `tasks.py`."""

import contextlib
import re
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get
from litestar.params import QueryParameter

from tideq.api import schemas
from tideq.api.edge.auth import Caller
from tideq.api.edge.disconnect import cancel_on_disconnect
from tideq.api.edge.paging import LINK, next_link
from tideq.api.edge.problems import BadRequest
from tideq.api.edge.responses import json_response
from tideq.api.operations import link_to, operation
from tideq.api.schemas.base import NAME_PATTERN
from tideq.api.service import InjectedService, Service
from tideq.api.task_lookup import archive_of
from tideq.persistence.history import History
from tideq.persistence.read.cursors import CursorError
from tideq.persistence.read.filters import TaskFilter
from tideq.persistence.read.list import DEFAULT_LIMIT, MAX_LIMIT
from tideq.persistence.terms import error_terms, parameter_term, tag_term
from tideq.queue_core.errors import HistoryUnavailable, StoreUnavailable
from tideq.queue_core.states import TaskState
from tideq.queue_core.transitions import LIVE, TERMINAL

Http = Request[Caller, Any, Any]
SOON_SECONDS = 0.2
"""How long a list waits for history to catch up: what was submitted before is in it then."""
Pair = Annotated[str, msgspec.Meta(pattern=r"^[^:\x00]{1,64}:[^\x00]{0,256}\Z")]
WORDS = r"^[^\x00]*\w[^\x00]*\Z"
CURSOR = QueryParameter(name="cursor", max_length=100, description="The `next_cursor` of the page before.")
TASK_TYPE = QueryParameter(name="task_type", pattern=NAME_PATTERN, description="Of this type.")
LIMIT = QueryParameter(name="limit", ge=1, le=MAX_LIMIT, description="The most on a page.")
DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw]?)")
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@get(
    "/",
    opt=operation(
        "viewer",
        "producer",
        answer=schemas.TasksOut,
        refuses=(BadRequest, HistoryUnavailable),
        answer_headers=(LINK,),
        links=link_to("tasks_read", "tasks_retry", task_id="/tasks/0/task_id"),
    ),
)
async def tasks(
    request: Http,
    service: InjectedService,
    status: Annotated[list[TaskState] | None, QueryParameter(name="status", description="In any of these.")] = None,
    task_type: Annotated[str | None, TASK_TYPE] = None,
    priority: Annotated[
        str | None, QueryParameter(name="priority", pattern=NAME_PATTERN, description="Of this level.")
    ] = None,
    tag: Annotated[list[Pair] | None, QueryParameter(name="tag", description="`key:value`; each must hold.")] = None,
    worker_id: Annotated[
        str | None,
        QueryParameter(name="worker_id", pattern=NAME_PATTERN, description="Whose the current or last attempt is."),
    ] = None,
    trace_id: Annotated[
        str | None, QueryParameter(name="trace_id", pattern=r"^[0-9a-f]{32}\Z", description="Of this trace.")
    ] = None,
    error: Annotated[
        str | None,
        QueryParameter(
            name="error", pattern=WORDS, max_length=500, description="Words that its errors hold, all of them."
        ),
    ] = None,
    parameter: Annotated[
        list[Pair] | None,
        QueryParameter(
            name="parameter", description="`name:value`, where the type's parameter is searchable; needs `task_type`."
        ),
    ] = None,
    created_after: Annotated[
        datetime | None, QueryParameter(name="created_after", description="Created then or later.")
    ] = None,
    created_before: Annotated[
        datetime | None, QueryParameter(name="created_before", description="Created earlier.")
    ] = None,
    limit: Annotated[int, LIMIT] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, CURSOR] = None,
    count: Annotated[bool, QueryParameter(name="count", description="Tell how many there are in all.")] = False,
) -> Response[bytes]:
    """Tasks, newest first, by any filters together. A page may be short and still have a next one.

    Times are those of the ids, which are the times of submission unless a client chose the id.
    """
    archive = archive_of(service)
    wanted = TaskFilter(
        states=tuple(status or ()),
        task_type=task_type,
        priority=priority,
        worker_id=worker_id,
        trace_id=trace_id,
        terms=(*_tags(tag), *error_terms(error or ""), *_parameters(archive, task_type, parameter)),
        created_from_ms=schemas.instant_ms(created_after) if created_after else None,
        created_below_ms=schemas.instant_ms(created_before) if created_before else None,
    )
    with contextlib.suppress(StoreUnavailable):
        await archive.freshness.wait_until_caught_up(SOON_SECONDS)
    with refused_cursors():
        page = await archive.listing.page(wanted, limit, cursor)
    answer = schemas.TasksOut(tasks=[schemas.task_out(task) for task in page.tasks], next_cursor=page.next_cursor)
    if count:
        answer.total, answer.total_is_exact = await archive.listing.count(wanted)
    return json_response(answer, headers=next_link(request, page.next_cursor))


@delete("/", status_code=200, opt=operation(answer=schemas.DeletedOut, refuses=(BadRequest, HistoryUnavailable)))
async def clean_up(
    request: Http,
    service: InjectedService,
    older_than: Annotated[
        str,
        QueryParameter(
            name="older_than",
            max_length=64,
            description="Ended before this instant (RFC 3339), or longer ago than this (`7d`, `12h`, seconds).",
            schema_extra={"anyOf": [{"pattern": f"^{DURATION.pattern}$"}, {"format": "date-time"}], "examples": ["7d"]},
        ),
    ],
    status: Annotated[
        list[TaskState] | None,
        QueryParameter(
            name="status",
            description="Only these, of the terminal ones.",
            schema_extra={"items": {"enum": sorted(TERMINAL)}},
        ),
    ] = None,
    task_type: Annotated[str | None, TASK_TYPE] = None,
) -> Response[bytes]:
    """Remove finished tasks for good, from the store and from history. Live tasks are never touched."""
    archive = archive_of(service)
    if live := LIVE.intersection(status or ()):
        raise BadRequest(f"{min(live)} tasks are not finished; cancel them first")
    ended_below_ms = await _instant(service, older_than)
    deleted = await cancel_on_disconnect(
        request, service.authenticator, archive.cleanup.run(ended_below_ms, status or (), task_type)
    )
    told = f"{deleted} tasks ({', '.join(status or ('finished',))}) older than {older_than}"
    await service.audit.note(request.user.name, "clean up", task_type or "", told)
    return json_response(schemas.DeletedOut(deleted=deleted))


@contextlib.contextmanager
def refused_cursors() -> Any:
    try:
        yield
    except CursorError as error:
        raise BadRequest(f"cursor: {error}") from error


async def _instant(service: Service, older_than: str) -> int:
    """By the store's clock, which is the one tasks end by. What ended this very millisecond is of age 0."""
    if duration := DURATION.fullmatch(older_than):
        age_ms = round(float(duration[1]) * SECONDS[duration[2]] * 1000)
        return (await service.engine.insight.stats()).now_ms + 1 - age_ms
    try:
        return schemas.instant_ms(msgspec.convert(older_than, datetime))
    except msgspec.ValidationError as error:
        raise BadRequest("older_than: neither an instant like 2026-03-02T09:15:00Z nor a time like 7d") from error


def _tags(tags: list[str] | None) -> list[str]:
    return [tag_term(name, value) for name, _, value in (tag.partition(":") for tag in tags or ())]


def _parameters(archive: History, task_type: str | None, parameters: list[str] | None) -> list[str]:
    if not parameters:
        return []
    if task_type is None:
        raise BadRequest("parameter: name the task_type whose parameter it is")
    pairs = [(name, value) for name, _, value in (each.partition(":") for each in parameters)]
    for name, _ in pairs:
        if name not in archive.searchable.get(task_type, ()):
            raise BadRequest(f"parameter: {task_type}:{name} is not among TIDEQ_SEARCHABLE_PARAMETERS")
    return [parameter_term(task_type, name, value) for name, value in pairs]
