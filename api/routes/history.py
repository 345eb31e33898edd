"""Tasks of any age, read from history: list, search, clean up. Served under the same path as `tasks.py`."""

import contextlib
import re
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get
from litestar.params import QueryParameter

from tideq.api.edge.auth import Caller
from tideq.api.edge.disconnect import cancel_on_disconnect
from tideq.api.edge.paging import LINK, next_link
from tideq.api.edge.problems import BadRequest
from tideq.api.edge.responses import json_response
from tideq.api.operations import link_to, operation
from tideq.api.schemas.base import NAME_PATTERN
from tideq.api.schemas.history import DeletedOut, TasksOut
from tideq.api.schemas.tasks import task_out
from tideq.api.schemas.times import instant_ms
from tideq.api.service import InjectedService, Service
from tideq.api.task_lookup import history_of
from tideq.persistence.history import History
from tideq.persistence.read.cursors import CursorError
from tideq.persistence.read.filters import TaskFilter
from tideq.persistence.read.task_list import DEFAULT_LIMIT, MAX_LIMIT
from tideq.persistence.terms import error_terms, parameter_term, tag_term
from tideq.queue_core.errors import HistoryUnavailable, StoreUnavailable
from tideq.queue_core.states import TaskState
from tideq.queue_core.transitions import LIVE, TERMINAL

Http = Request[Caller, Any, Any]
CATCH_UP_SECONDS = 0.2
"""How long a list waits for history to catch up, so that it contains tasks submitted just before."""
Pair = Annotated[str, msgspec.Meta(pattern=r"^[^:\x00]{1,64}:[^\x00]{0,256}\Z")]
WORDS = r"^[^\x00]*\w[^\x00]*\Z"
CURSOR = QueryParameter(name="cursor", max_length=100, description="`next_cursor` of the previous page.")
TASK_TYPE = QueryParameter(name="task_type", pattern=NAME_PATTERN, description="Only tasks of this type.")
LIMIT = QueryParameter(name="limit", ge=1, le=MAX_LIMIT, description="Largest number on a page.")
DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw]?)")
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


@get(
    "/",
    opt=operation(
        "viewer",
        "producer",
        answer=TasksOut,
        refuses=(BadRequest, HistoryUnavailable),
        answer_headers=(LINK,),
        links=link_to("tasks_read", "tasks_retry", task_id="/tasks/0/task_id"),
    ),
)
async def tasks(
    request: Http,
    service: InjectedService,
    status: Annotated[
        list[TaskState] | None, QueryParameter(name="status", description="Only tasks in this state; may be repeated.")
    ] = None,
    task_type: Annotated[str | None, TASK_TYPE] = None,
    priority: Annotated[
        str | None, QueryParameter(name="priority", pattern=NAME_PATTERN, description="Only tasks of this priority.")
    ] = None,
    tag: Annotated[
        list[Pair] | None, QueryParameter(name="tag", description="`key:value`; may be repeated, all must match.")
    ] = None,
    worker_id: Annotated[
        str | None,
        QueryParameter(
            name="worker_id", pattern=NAME_PATTERN, description="Only tasks with their current or last attempt here."
        ),
    ] = None,
    trace_id: Annotated[
        str | None, QueryParameter(name="trace_id", pattern=r"^[0-9a-f]{32}\Z", description="Only tasks of this trace.")
    ] = None,
    error: Annotated[
        str | None,
        QueryParameter(
            name="error", pattern=WORDS, max_length=500, description="Words of the task's errors; all must occur."
        ),
    ] = None,
    parameter: Annotated[
        list[Pair] | None,
        QueryParameter(
            name="parameter", description="`name:value` of a searchable parameter of the type; needs `task_type`."
        ),
    ] = None,
    created_after: Annotated[
        datetime | None, QueryParameter(name="created_after", description="Created at this instant or later.")
    ] = None,
    created_before: Annotated[
        datetime | None, QueryParameter(name="created_before", description="Created before this instant.")
    ] = None,
    limit: Annotated[int, LIMIT] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, CURSOR] = None,
    count: Annotated[bool, QueryParameter(name="count", description="Return the total number.")] = False,
) -> Response[bytes]:
    """List tasks, newest first, filtered by any combination. A page may be short and still have a next one.

    Creation times are those in the ids: the time of submission, unless the client chose the id.
    """
    history = history_of(service)
    wanted = TaskFilter(
        states=tuple(status or ()),
        task_type=task_type,
        priority=priority,
        worker_id=worker_id,
        trace_id=trace_id,
        terms=(*_tags(tag), *error_terms(error or ""), *_parameters(history, task_type, parameter)),
        created_from_ms=instant_ms(created_after) if created_after else None,
        created_below_ms=instant_ms(created_before) if created_before else None,
    )
    with contextlib.suppress(StoreUnavailable):
        await history.lag.wait_until_caught_up(CATCH_UP_SECONDS)
    with refused_cursors():
        page = await history.listing.page(wanted, limit, cursor)
    answer = TasksOut(tasks=[task_out(task) for task in page.tasks], next_cursor=page.next_cursor)
    if count:
        answer.total, answer.total_is_exact = await history.listing.count(wanted)
    return json_response(answer, headers=next_link(request, page.next_cursor))


@delete("/", status_code=200, opt=operation(answer=DeletedOut, refuses=(BadRequest, HistoryUnavailable)))
async def clean_up(
    request: Http,
    service: InjectedService,
    older_than: Annotated[
        str,
        QueryParameter(
            name="older_than",
            max_length=64,
            description="Ended before this instant (RFC 3339), or this long ago or longer (`7d`, `12h`, seconds).",
            schema_extra={"anyOf": [{"pattern": f"^{DURATION.pattern}$"}, {"format": "date-time"}], "examples": ["7d"]},
        ),
    ],
    status: Annotated[
        list[TaskState] | None,
        QueryParameter(
            name="status",
            description="Only these terminal states; may be repeated.",
            schema_extra={"items": {"enum": sorted(TERMINAL)}},
        ),
    ] = None,
    task_type: Annotated[str | None, TASK_TYPE] = None,
) -> Response[bytes]:
    """Remove finished tasks from the store and from history. Live tasks are never removed."""
    history = history_of(service)
    if live := LIVE.intersection(status or ()):
        raise BadRequest(f"status: {min(live)} is not terminal; cancel these tasks first")
    ended_below_ms = await _instant(service, older_than)
    deleted = await cancel_on_disconnect(
        request, service.authenticator, history.cleanup.run(ended_below_ms, status or (), task_type)
    )
    details = f"{deleted} tasks ({', '.join(status or ('finished',))}) older than {older_than}"
    await service.audit.note(request.user.name, "clean up", task_type or "", details)
    return json_response(DeletedOut(deleted=deleted))


@contextlib.contextmanager
def refused_cursors() -> Any:
    try:
        yield
    except CursorError as error:
        raise BadRequest(f"cursor: {error}") from error


async def _instant(service: Service, older_than: str) -> int:
    """By the store's clock, which also sets the times of ending. A task that ended this millisecond has age 0."""
    if duration := DURATION.fullmatch(older_than):
        age_ms = round(float(duration[1]) * SECONDS[duration[2]] * 1000)
        return (await service.engine.insight.stats()).now_ms + 1 - age_ms
    try:
        return instant_ms(msgspec.convert(older_than, datetime))
    except msgspec.ValidationError as error:
        raise BadRequest("older_than: must be an instant like 2026-03-02T09:15:00Z or a duration like 7d") from error


def _tags(tags: list[str] | None) -> list[str]:
    return [tag_term(name, value) for name, _, value in (tag.partition(":") for tag in tags or ())]


def _parameters(history: History, task_type: str | None, parameters: list[str] | None) -> list[str]:
    if not parameters:
        return []
    if task_type is None:
        raise BadRequest("parameter: needs `task_type` too")
    pairs = [(name, value) for name, _, value in (each.partition(":") for each in parameters)]
    for name, _ in pairs:
        if name not in history.searchable.get(task_type, ()):
            raise BadRequest(f"parameter: {task_type}:{name} is not searchable; add it to TIDEQ_SEARCHABLE_PARAMETERS")
    return [parameter_term(task_type, name, value) for name, value in pairs]
