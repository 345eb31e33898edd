"""What a span is here, and who takes them: the shape that API, monitor and exporter share.

Spans are told when they are over and never looked at again, so one is a plain tuple. Who makes them asks a `Tracing`
what is sampled; where there is none, nothing is traced and nothing of OpenTelemetry is imported.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from tideq.queue_core.trace_context import TraceParent

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
"""Kinds of spans, numbered as OTLP does."""

Attributes = Mapping[str, str | int]


class SpanError(NamedTuple):
    """`kind` is for `error.type`: from a small set, never a message."""

    kind: str
    message: str


class Span(NamedTuple):
    name: str
    kind: int
    context: TraceParent
    parent_id: str
    """Empty for a root."""
    began_ns: int
    ended_ns: int
    attributes: Attributes
    error: SpanError | None = None
    tracestate: str = ""


class Tracing(Protocol):
    @property
    def lost_count(self) -> int:
        """Spans that never arrived, as far as is known here."""
        ...

    def begin(self, parent: TraceParent | None, name: str) -> TraceParent:
        """A context for a new span: the parent's child, or the first of a trace of its own, sampled or not."""
        ...

    def charge(self, span_count: int) -> None:
        """A trace turned out larger than one: that much less is begun in the next seconds."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether a span would be taken now. Who makes many asks first: to make one costs more than to drop it."""
        ...

    def miss(self, span_count: int) -> None:
        """So many were not made, for want of room."""
        ...

    def record(self, span: Span) -> None:
        """Takes it or drops it, and never waits."""
        ...
