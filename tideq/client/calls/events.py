"""The stream of transitions: path, filters and decoding."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec

from tideq.client.calls.base import Params, params
from tideq.client.calls.listing import several
from tideq.client.encoding import decode_as
from tideq.client.http.exchange import HttpRequest
from tideq.client.models.events import Event, Gap, Transition
from tideq.client.models.tasks import Status
from tideq.client.sse import Message

EVENTS = "/api/v1/events"
SILENCE_SECONDS = 45.0
"""Three times the keep-alive interval of the service."""
BEGINNING = "0-0-0"
"""The position of a stream that began before the first event."""

KINDS: dict[str, type[Event]] = {"transition": Transition, "gap": Gap}


class EventFilter(TypedDict, total=False):
    """Filters for transitions; several values of one filter are alternatives."""

    task_id: str | Sequence[str]
    status: Status | Sequence[Status]
    task_type: str | Sequence[str]
    priority: str | Sequence[str]
    worker_id: str | Sequence[str]


def events(filters: Params, headers: Mapping[str, str]) -> HttpRequest:
    return HttpRequest(method="GET", path=EVENTS, params=filters, headers=headers, waits_seconds=SILENCE_SECONDS)


def filter_params(filters: EventFilter) -> Params:
    return params(
        task_id=several(filters.get("task_id", ())),
        status=several(filters.get("status", ())),
        task_type=several(filters.get("task_type", ())),
        priority=several(filters.get("priority", ())),
        worker_id=several(filters.get("worker_id", ())),
    )


def event_in(message: Message) -> Event | None:
    """Returns None for kinds of events that a later service may add."""
    if not message.is_event or message.name not in KINDS:
        return None
    event = decode_as(message.data.encode(), KINDS[message.name])
    return msgspec.structs.replace(event, event_id=message.last_id or "")
