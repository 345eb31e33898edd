"""Listening to transitions."""

from collections.abc import Sequence
from typing import TypedDict

import msgspec

from tideq.client.calls.base import Params, params
from tideq.client.calls.listing import several
from tideq.client.encoding import decode_as
from tideq.client.models.events import Event, Gap, Transition
from tideq.client.models.tasks import Status
from tideq.client.sse import Message

EVENTS = "/api/v1/events"
SILENCE_SECONDS = 45.0
"""Three times what the service lets pass without a sign of life."""
BEGINNING = "0-0-0"
"""Where a listener goes on that was told no place, because nothing had happened yet."""

KINDS: dict[str, type[Event]] = {"transition": Transition, "gap": Gap}


class EventFilter(TypedDict, total=False):
    """Which transitions; several values of one kind are alternatives."""

    task_id: str | Sequence[str]
    status: Status | Sequence[Status]
    task_type: str | Sequence[str]
    priority: str | Sequence[str]
    worker_id: str | Sequence[str]


def filter_params(wanted: EventFilter) -> Params:
    return params(
        task_id=several(wanted.get("task_id", ())),
        status=several(wanted.get("status", ())),
        task_type=several(wanted.get("task_type", ())),
        priority=several(wanted.get("priority", ())),
        worker_id=several(wanted.get("worker_id", ())),
    )


def event_in(message: Message) -> Event | None:
    """Kinds that a later service may add are passed over."""
    if not message.is_event or message.name not in KINDS:
        return None
    event = decode_as(message.data.encode(), KINDS[message.name])
    return msgspec.structs.replace(event, event_id=message.last_id or "")
