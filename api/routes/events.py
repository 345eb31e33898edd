"""Transitions as they happen, as server-sent events."""

from collections.abc import AsyncGenerator
from typing import Annotated

import msgspec
from litestar import Router, get
from litestar.params import QueryParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from tideq.api import schemas
from tideq.api.auth import for_roles
from tideq.api.service import InjectedService
from tideq.queue_core.engine.outbox import Event

KEEP_ALIVE_SECONDS = 15.0


@get("/", opt=for_roles("viewer", "producer"))
async def events(
    service: InjectedService,
    task_id: Annotated[list[str] | None, QueryParameter(name="task_id")] = None,
    status: Annotated[list[str] | None, QueryParameter(name="status")] = None,
) -> ServerSentEvent:
    """Every transition from now on; `task_id` and `status` may be repeated to see only some."""

    def wants(event: Event) -> bool:
        return (not task_id or event.task_id in task_id) and (not status or event.record.text("state") in status)

    async def stream() -> AsyncGenerator[ServerSentEventMessage]:
        with service.outbox.subscribe(wants) as subscription:
            while not subscription.is_cut_off and not service.is_closing:
                event = await subscription.next(KEEP_ALIVE_SECONDS)
                yield _message(event) if event else ServerSentEventMessage(comment="still here", data=None)

    return ServerSentEvent(stream())


def _message(event: Event) -> ServerSentEventMessage:
    record = event.record
    told = {
        "task_id": event.task_id,
        "status": record.text("state"),
        "reason": record.text("reason"),
        "version": record.number("version"),
        "attempt": record.number("attempt"),
        "priority": record.priority,
        "worker_id": record.text("worker") or None,
        "at": schemas.rfc3339(event.now_ms),
    }
    return ServerSentEventMessage(id=event.entry_id, event="transition", data=msgspec.json.encode(told).decode())


router = Router("/api/v1/events", route_handlers=[events])
