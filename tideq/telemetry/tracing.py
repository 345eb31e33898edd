"""Tracing with OpenTelemetry: what is sampled is decided here, what is recorded goes to the outlet."""

import random

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, ProxyTracerProvider, set_span_in_context

from tideq.queue_core.trace_context import SAMPLED, TraceParent
from tideq.queue_core.tracing import Span
from tideq.telemetry.outlet import CLOSE_SECONDS, Outlet
from tideq.telemetry.readable import span_context
from tideq.telemetry.sampling import Samplers


class OtelTracing:
    def __init__(self, outlet: Outlet, samplers: Samplers) -> None:
        self.outlet = outlet
        self._samplers = samplers

    @property
    def lost_count(self) -> int:
        return self.outlet.dropped_count + self.outlet.failed_count

    def begin(self, parent: TraceParent | None, name: str) -> TraceParent:
        """Whoever began the trace decides; only samplers that say so by their name do not care."""
        samplers, span_id = self._samplers, f"{random.getrandbits(64) or 1:016x}"
        if parent is None:
            trace_id = f"{random.getrandbits(128) or 1:032x}"
            is_sampled = samplers.limit.take() if samplers.limit else self._asks(None, trace_id, name)
            return TraceParent(trace_id, span_id, int(is_sampled))
        if samplers.follows_parents:
            return parent.child(span_id)
        is_sampled = self._asks(parent, parent.trace_id, name)
        return TraceParent(parent.trace_id, span_id, parent.flags & ~SAMPLED | is_sampled)

    def charge(self, span_count: int) -> None:
        if self._samplers.limit is not None:
            self._samplers.limit.charge(span_count)

    @property
    def has_room(self) -> bool:
        return self.outlet.has_room

    def miss(self, span_count: int) -> None:
        self.outlet.dropped_count += span_count

    def record(self, span: Span) -> None:
        self.outlet.take(span)

    def close(self) -> None:
        self.outlet.close(CLOSE_SECONDS)

    def serve_handlers(self) -> None:
        """Have the spans that this process's own code makes sent too, unless it has seen to that itself."""
        if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
            sampler, resource = self._samplers.sampler, self.outlet.resource
            provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(self.outlet)
            trace.set_tracer_provider(provider)

    def _asks(self, parent: TraceParent | None, trace_id: str, name: str) -> bool:
        context = Context()
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(span_context(parent, is_remote=True)), context)
        result = self._samplers.sampler.should_sample(context, int(trace_id, 16), name)
        return result.decision is Decision.RECORD_AND_SAMPLE
