"""Transitions as server-sent events."""

from collections.abc import Iterable
from typing import Annotated, Any

from litestar import Request, Response, Router, get
from litestar.params import QueryParameter

from tideq.api.edge.auth import Caller
from tideq.api.edge.problems import ServiceClosing, UnprocessableContent
from tideq.api.event_stream import EventFilter, EventStream, EventStreamSession
from tideq.api.operations import EVENT_ID, LAST_EVENT_ID, operation
from tideq.api.schemas.events import EventOut, GapOut
from tideq.api.service import InjectedService
from tideq.queue_core.outbox.stream import EventCursor, parse_event_cursor
from tideq.queue_core.states import TaskState

Http = Request[Caller, Any, Any]
Texts = list[str] | None


@get(
    "/",
    opt=operation(
        "viewer",
        "producer",
        answer=(EventOut, GapOut),
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
    worker_id: Annotated[
        Texts, QueryParameter(name="worker_id", description="Only tasks that these workers hold.")
    ] = None,
    last_event_id: Annotated[
        str | None,
        QueryParameter(
            name="last_event_id",
            description="Resume after this event; the header `Last-Event-ID` overrides it.",
            schema_extra=EVENT_ID,
        ),
    ] = None,
) -> Response[bytes]:
    """Stream every transition, from now on or after the client's last event; all filters may be repeated.

    An event named `gap` means that events are missing, because the last one is no longer stored: read again what you
    display.
    """
    if service.is_closing:
        raise ServiceClosing("the service is stopping; try again")
    after = _cursor(request.headers.get("last-event-id") or last_event_id, len(service.outboxes))
    chosen = EventFilter(*map(_set, (task_id, status, task_type, priority, worker_id)))
    stream = EventStreamSession(service.outboxes, service.live_events, chosen.wants, after)
    return EventStream(stream, service.metrics, lambda: service.authenticator.watch_key(request.user))


def _set(values: Iterable[str] | None) -> frozenset[str]:
    return frozenset(map(str, values or ()))


def _cursor(written: str | None, count: int) -> EventCursor | None:
    if not written:
        return None
    if (cursor := parse_event_cursor(written, count)) is None:
        raise UnprocessableContent(f"last_event_id: {written[:40]!r} is not valid; use the `id` of a received event")
    return cursor


router = Router("/api/v1/events", route_handlers=[events])
