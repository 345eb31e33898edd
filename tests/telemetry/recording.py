"""A tracing that keeps what it is given, and samples as it is told."""

import random

from tests.telemetry.sink import Seen
from tideq.queue_core.telemetry.spans import Span
from tideq.queue_core.telemetry.trace_context import TraceParent


class Recording:
    def __init__(self, *, samples_roots: bool = True) -> None:
        self.samples_roots = samples_roots
        self.spans: list[Span] = []
        self.charged = 0
        self.lost_count = 0
        self.has_room = True

    def begin(self, parent: TraceParent | None, name: str) -> TraceParent:
        span_id = f"{random.getrandbits(64):016x}"
        return parent.child(span_id) if parent else TraceParent(f"{random.getrandbits(128):032x}", span_id, self.flags)

    @property
    def flags(self) -> int:
        return int(self.samples_roots)

    def charge(self, span_count: int) -> None:
        self.charged += span_count

    def miss(self, span_count: int) -> None:
        self.lost_count += span_count

    def record(self, span: Span) -> None:
        self.spans.append(span)

    @property
    def seen(self) -> list[Seen]:
        """As a collector would, of a process on one host."""
        return [
            Seen(
                name=span.name,
                kind=span.kind + 1,  # as OTLP counts them
                trace_id=span.context.trace_id,
                span_id=span.context.span_id,
                parent_id=span.parent_id,
                began_ns=span.began_ns,
                ended_ns=span.ended_ns,
                attributes={**span.attributes},
                is_error=span.error is not None,
                events=[],
                service="",
                scope="",
                host="here",
                links=[(link.trace_id, link.span_id) for link in span.links],
            )
            for span in self.spans
        ]

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]
