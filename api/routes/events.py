"""Transitions as they happen, as server-sent events."""

from collections.abc import Iterable
from typing import Annotated, Any

from litestar import Request, Response, Router, get
from litestar.params import QueryParameter

from tideq.api import schemas
from tideq.api.edge.auth import Caller
from tideq.api.edge.problems import ServiceClosing, UnprocessableContent
from tideq.api.event_stream import EventFilter, EventStream, EventStreamSession
from tideq.api.operations import EVENT_ID, LAST_EVENT_ID, operation
from tideq.api.service import InjectedService
from tideq.queue_core.outbox.event_cursor import EventCursor, parse_event_cursor
from tideq.queue_core.states import TaskState

Http = Request[Caller, Any, Any]
Texts = list[str] | None


@get(
    "/",
    opt=operation(
        "viewer",
        "producer",
        answer=(schemas.EventOut, schemas.GapOut),
        media_type="text/event-stream",
        headers=(LAST_EVENT_ID,),
        refuses=(UnprocessableContent, ServiceClosing),
    ),
)
async def events(
    request: Http,
    service: InjectedService,
    task_id: Annotated[Texts, QueryParameter(name="task_id", description="Only these tasks.")] = None,
    status: Annotated[
        list[TaskState] | None, QueryParameter(name="status", description="Only transitions to these states.")
    ] = None,
    task_type: Annotated[Texts, QueryParameter(name="task_type", description="Only these types.")] = None,
    priority: Annotated[Texts, QueryParameter(name="priority", description="Only these levels.")] = None,
    worker_id: Annotated[Texts, QueryParameter(name="worker_id", description="Only what these workers hold.")] = None,
    last_event_id: Annotated[
        str | None,
        QueryParameter(
            name="last_event_id",
            description="Go on after this event; `Last-Event-ID` goes before it.",
            schema_extra=EVENT_ID,
        ),
    ] = None,
) -> Response[bytes]:
    """Every transition, from now on or from the last event a listener has; all filters may be repeated.

    An event named `gap` says that events are missing, because the last one is no longer kept: read again what you show.
    """
    if service.is_closing:
        raise ServiceClosing("draining")
    after = _places(request.headers.get("last-event-id") or last_event_id, len(service.outboxes))
    chosen = EventFilter(*map(_set, (task_id, status, task_type, priority, worker_id)))
    listener = EventStreamSession(service.outboxes, service.outbox_reader, chosen.wants, after)
    return EventStream(listener, service.meters, lambda: service.authenticator.watching(request.user))


def _set(values: Iterable[str] | None) -> frozenset[str]:
    return frozenset(map(str, values or ()))


def _places(written: str | None, count: int) -> EventCursor | None:
    if not written:
        return None
    if (places := parse_event_cursor(written, count)) is None:
        raise UnprocessableContent(f"last_event_id: {written[:40]!r} is no event id of ours")
    return places


router = Router("/api/v1/events", route_handlers=[events])
