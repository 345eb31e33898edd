"""The stream of transitions: path, filters, events, and the parser of server-sent events. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypedDict

import msgspec

from tideq.client.calls.base import Params, params
from tideq.client.calls.listing import several
from tideq.client.encoding import decode_as
from tideq.client.http.exchange import HttpRequest
from tideq.client.models.tasks import Status


class Message(NamedTuple):
    """The fields between two blank lines. Without data it is no event, but may carry the last id."""

    name: str
    data: str
    last_id: str | None
    retry_ms: int | None

    @property
    def is_event(self) -> bool:
        return bool(self.data)


class SseParser:
    """`feed` takes a chunk and returns the complete messages. One parser for each connection."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: list[tuple[str, str]] = []

    def feed(self, chunk: bytes) -> list[Message]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        return [message for line in lines if (message := self._line(line.removesuffix(b"\r").decode())) is not None]

    def _line(self, line: str) -> Message | None:
        if line:
            name, _, value = line.partition(":")
            self._fields.append((name, value.removeprefix(" ")))
            return None
        fields, self._fields = self._fields, []
        return _message(fields) if fields else None


def _message(fields: list[tuple[str, str]]) -> Message:
    """A line that begins with a colon is a comment: its field has no name."""
    last = dict(fields)
    data = "\n".join(value for name, value in fields if name == "data")
    retry = last.get("retry", "")
    return Message(last.get("event", "message"), data, last.get("id"), int(retry) if retry.isdecimal() else None)


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A task changed its state."""

    task_id: str
    task_type: str
    status: str
    at: datetime
    reason: str = ""
    version: int = 0
    attempt: int = 0
    priority: str = ""
    worker_id: str | None = None
    event_id: str = ""
    """For `client.events(after=…)`, to continue after this event."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Events are missing here, because the service no longer has them: read the tasks you show again."""

    detail: str = ""
    event_id: str = ""


Event = Transition | Gap


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
