"""Handlers inside their task's trace, where the application or `tideq worker` uses OpenTelemetry.

Only its API is used, as any library would: who sends spans, and where to, is the process's business. A process that
never imported OpenTelemetry has no traces, and nothing is imported for it here.
"""

import contextlib
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from tideq.queue_core import telemetry
from tideq.workers.runtime.protocol import GivenTask

if TYPE_CHECKING:
    from opentelemetry.context import Context

NOTHING = contextlib.nullcontext[None]()
MAX_SETTLING = 10_000
"""A service that takes no results for long costs spans, and no memory."""


def is_traced() -> bool:
    return "opentelemetry.trace" in sys.modules


class HandlerTracer:
    """Of one crew."""

    def __init__(self) -> None:
        self.queue_name = ""
        self._settling: dict[str, Any] = {}

    def processing(self, task: GivenTask, worker_id: str) -> AbstractContextManager[None]:
        """The handler runs inside; its own spans and submissions belong to this attempt."""
        if task.traceparent is None or not is_traced():
            return NOTHING
        attributes = self._attributes(telemetry.PROCESS, task, worker_id)
        return _processing(f"{telemetry.PROCESS} {self.queue_name}", _context_of(task), attributes)

    def begin_settling(self, task: GivenTask, worker_id: str) -> None:
        """A result is ready to be told."""
        if task.traceparent is None or not is_traced() or len(self._settling) >= MAX_SETTLING:
            return
        from opentelemetry.trace import SpanKind, get_tracer

        self._settling[task.lease] = get_tracer(telemetry.SCOPE).start_span(
            f"{telemetry.SETTLE} {self.queue_name}",
            context=_context_of(task),
            kind=SpanKind.CLIENT,
            attributes=self._attributes(telemetry.SETTLE, task, worker_id),
        )

    def end_settling(self, lease: str, problem: str = "") -> None:
        """The service has taken it, or refused it for good."""
        span = self._settling.pop(lease, None) if self._settling else None
        if span is None:
            return
        if problem:
            from opentelemetry.trace import StatusCode

            span.set_attribute(telemetry.ERROR_TYPE, problem)
            span.set_status(StatusCode.ERROR, problem)
        span.end(time.time_ns())

    def _attributes(self, operation: str, task: GivenTask, worker_id: str) -> dict[str, str | int]:
        return {
            telemetry.MESSAGING_SYSTEM: telemetry.SYSTEM,
            telemetry.MESSAGING_OPERATION_NAME: operation,
            telemetry.MESSAGING_OPERATION_TYPE: operation,
            telemetry.MESSAGING_DESTINATION: self.queue_name,
            telemetry.MESSAGING_MESSAGE_ID: task.task_id,
            telemetry.MESSAGING_CLIENT_ID: worker_id,
            telemetry.TASK_TYPE: task.task_type,
            telemetry.TASK_ATTEMPT: task.attempt,
        }


def carrier() -> dict[str, str]:
    """The trace this code is in, to be resumed elsewhere."""
    if not is_traced():
        return {}
    from opentelemetry.propagate import inject

    found: dict[str, str] = {}
    inject(found)
    return found


def mark_failed() -> None:
    """The span this code is in, where no exception will say so."""
    if is_traced():
        from opentelemetry.trace import StatusCode, get_current_span

        get_current_span().set_status(StatusCode.ERROR)


def resumed(carried: Mapping[str, str]) -> AbstractContextManager[None]:
    """Inside, the trace that was carried here goes on."""
    return _inside(_extracted(carried)) if carried and is_traced() else NOTHING


@contextlib.contextmanager
def _processing(name: str, context: "Context", attributes: dict[str, str | int]) -> Generator[None]:
    from opentelemetry.trace import SpanKind, get_tracer

    with (
        _inside(context),
        get_tracer(telemetry.SCOPE).start_as_current_span(name, kind=SpanKind.CONSUMER, attributes=attributes),
    ):
        yield


@contextlib.contextmanager
def _inside(context: "Context") -> Generator[None]:
    from opentelemetry.context import attach, detach

    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def _context_of(task: GivenTask) -> "Context":
    told = {"traceparent": task.traceparent, "tracestate": task.tracestate, "baggage": task.baggage}
    return _extracted({name: value for name, value in told.items() if value})


def _extracted(carried: Mapping[str, str]) -> "Context":
    """The service speaks W3C, whatever the process is configured to speak with others."""
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract(carried, Context())
    return W3CBaggagePropagator().extract(carried, context)
