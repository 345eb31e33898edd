"""Spans, and the `Tracing` interface that records them, shared by API, monitor and exporter.

A span is recorded once, when it has ended, so it is a plain struct. `Tracing` decides what is sampled; without one,
nothing is traced and OpenTelemetry's SDK is not imported.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from tideq.queue_core.telemetry import names as telemetry
from tideq.queue_core.telemetry.trace_context import TraceParent

INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = range(5)
"""Kinds of spans, numbered as OpenTelemetry's API does."""
LEAST_NS = 1_000
"""Shortest span: viewers treat a span without length as broken, and a clock may have been set back."""
CONVENTIONAL = (telemetry.SEND, telemetry.RECEIVE, telemetry.PROCESS, telemetry.SETTLE)
"""Operations that are also types of operations in the messaging conventions."""

Attributes = Mapping[str, str | int]
NONE: Attributes = MappingProxyType({})


class SpanError(NamedTuple):
    """`kind` becomes `error.type`: a word from a small set, never a message."""

    kind: str
    message: str


class Span(msgspec.Struct):
    """An ended span, of at least LEAST_NS."""

    name: str
    kind: int
    context: TraceParent
    parent_id: str
    """Empty for a root span."""
    began_ns: int
    ended_ns: int
    attributes: Attributes = NONE
    error: SpanError | None = None
    tracestate: str = ""
    links: tuple[TraceParent, ...] = ()
    """Related spans, mostly of other traces."""

    def __post_init__(self) -> None:
        self.ended_ns = max(self.ended_ns, self.began_ns + LEAST_NS)


def messaging_attributes(operation: str, queue_name: str) -> dict[str, str | int]:
    """What OpenTelemetry's conventions want of every span of a call."""
    attributes: dict[str, str | int] = {
        telemetry.MESSAGING_SYSTEM: telemetry.SYSTEM,
        telemetry.MESSAGING_OPERATION_NAME: operation,
        telemetry.MESSAGING_DESTINATION: queue_name,
    }
    if operation in CONVENTIONAL:
        attributes[telemetry.MESSAGING_OPERATION_TYPE] = operation
    return attributes


class Tracing(Protocol):
    @property
    def lost_count(self) -> int:
        """Spans that this process dropped or failed to send."""
        ...

    def begin(self, parent: TraceParent | None, name: str) -> TraceParent:
        """Returns the context of a new span: a child of `parent`, or the root of a new trace, sampled or not."""
        ...

    def charge(self, span_count: int) -> None:
        """Count further spans of a trace against the sampling rate of the next seconds."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether a span would be accepted now. Check before making many: making a span costs more than dropping it."""
        ...

    def miss(self, span_count: int) -> None:
        """Count spans that were not made because there was no room."""
        ...

    def record(self, span: Span, /) -> None:
        """Accept or drop the span; never blocks."""
        ...
