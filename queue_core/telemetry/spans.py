"""What a span is here, and who takes them: the shape that API, monitor and exporter share.

Spans are told when they are over and never looked at again, so one is a plain struct. What many of them share is a
shape, made once: what is left are ids and instants. Who makes them asks a `Tracing` what is sampled; where there is
none, nothing is traced and nothing of OpenTelemetry is imported.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from tideq.queue_core.telemetry.trace_context import TraceParent

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
"""Kinds of spans, numbered as OTLP does."""

Attributes = Mapping[str, str | int]
NONE: Attributes = MappingProxyType({})


class SpanError(NamedTuple):
    """`kind` is for `error.type`: from a small set, never a message."""

    kind: str
    message: str


class Shape:
    """Name, kind and the attributes that come again and again. Whoever makes such spans keeps a bounded number."""

    __slots__ = ("attributes", "encoded", "kind", "name")

    def __init__(self, name: str, kind: int, attributes: Attributes = NONE) -> None:
        self.name = name
        self.kind = kind
        self.attributes = attributes
        self.encoded = b""
        """For the exporter, which encodes it when it first meets it: a `send` span took 5.8 µs without, 1.4 with it."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """Made in C, and nothing the garbage collector looks at while it waits to be sent."""

    shape: Shape
    context: TraceParent
    parent_id: str
    """Empty for a root."""
    began_ns: int
    ended_ns: int
    own: Attributes = NONE
    """Beside the shape's, and none of those."""
    error: SpanError | None = None
    tracestate: str = ""
    links: tuple[TraceParent, ...] = ()
    """Spans, mostly of other traces, that have to do with it."""

    @property
    def name(self) -> str:
        return self.shape.name

    @property
    def kind(self) -> int:
        return self.shape.kind

    @property
    def attributes(self) -> Attributes:
        return {**self.shape.attributes, **self.own}


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

    def record(self, span: Span, /) -> None:
        """Takes it or drops it, and never waits."""
        ...
