"""Runs handlers inside their task's trace, where the application or `tideq worker` uses OpenTelemetry.

Uses the OpenTelemetry API only: the process configures export. A process that never imported OpenTelemetry gets no
traces and no import.
"""

import contextlib
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from tideq.queue_core.telemetry import names as telemetry
from tideq.queue_core.telemetry.spans import messaging_attributes
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import error_code, message_of, traceback_of
from tideq.workers.runtime.service_api import AssignedTask

if TYPE_CHECKING:
    from opentelemetry.context import Context

NOTHING = contextlib.nullcontext[None]()
MAX_SETTLING = 10_000
"""Bounds memory while the service accepts no results; further spans are dropped or ended early."""
SUPERSEDED = ("wrong-state", "stale-lease", "task-not-found")
"""Refusals of results that are obsolete: the task was cancelled, timed out or given to another worker."""


class Processed(NamedTuple):
    """A handler's span that is over and not exported yet."""

    span: Any
    ended_ns: int


def is_traced() -> bool:
    return "opentelemetry.trace" in sys.modules


class HandlerTracer:
    """The spans of one consumer."""

    def __init__(self) -> None:
        self.queue_name = ""
        self._processed: dict[str, Processed] = {}
        self._settling: dict[str, Any] = {}

    def processing(self, task: AssignedTask, worker_id: str, run: TaskContext) -> AbstractContextManager[None]:
        """The context manager the handler runs in: its spans and submissions become children of this attempt."""
        if task.traceparent is None or not is_traced():
            return NOTHING
        return self._processing(task, worker_id, run)

    @contextlib.contextmanager
    def _processing(self, task: AssignedTask, worker_id: str, run: TaskContext) -> Generator[None]:
        from opentelemetry.trace import SpanKind, get_tracer, use_span

        span = get_tracer(telemetry.SCOPE).start_span(
            f"{telemetry.PROCESS} {self.queue_name}",
            context=(context := _context_of(task)),
            kind=SpanKind.CONSUMER,
            attributes=self._attributes(telemetry.PROCESS, task, worker_id),
        )
        try:
            with _inside(context), use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            if not run.is_cancelled:
                _fail(span, error_code(error), message_of(error))
                span.add_event(telemetry.EXCEPTION_EVENT, _described(error))
            raise
        finally:
            self._keep(task.lease, Processed(span, time.time_ns()))

    def _keep(self, lease: str, processed: Processed) -> None:
        """Ends the span only once the result is settled: its parent, the execution span, is recorded then."""
        if len(self._processed) < MAX_SETTLING:
            self._processed[lease] = processed
        else:
            processed.span.end(processed.ended_ns)

    def begin_settling(self, task: AssignedTask, worker_id: str) -> None:
        if task.traceparent is None or not is_traced() or len(self._settling) >= MAX_SETTLING:
            return
        from opentelemetry.trace import SpanKind, get_tracer, set_span_in_context

        processed = self._processed.get(task.lease)
        self._settling[task.lease] = get_tracer(telemetry.SCOPE).start_span(
            f"{telemetry.SETTLE} {self.queue_name}",
            context=set_span_in_context(processed.span) if processed else _context_of(task),
            kind=SpanKind.CLIENT,
            attributes=self._attributes(telemetry.SETTLE, task, worker_id),
        )

    def end_settling(self, lease: str, problem: str = "") -> None:
        """Ends the span of a result that the service has accepted, or refused with `problem`."""
        self.end_processing(lease)
        span = self._settling.pop(lease, None) if self._settling else None
        if span is None:
            return
        if problem in SUPERSEDED:
            span.set_attribute(telemetry.REFUSAL, problem)
        elif problem:
            _fail(span, problem, problem)
        span.end(time.time_ns())

    def end_processing(self, lease: str) -> None:
        if processed := self._processed.pop(lease, None):
            processed.span.end(processed.ended_ns)

    def end(self) -> None:
        """Ends also the spans of results that never reached the service."""
        for lease in list(self._processed):
            self.end_processing(lease)

    def _attributes(self, operation: str, task: AssignedTask, worker_id: str) -> dict[str, str | int]:
        return {
            **messaging_attributes(operation, self.queue_name),
            telemetry.MESSAGING_MESSAGE_ID: task.task_id,
            telemetry.MESSAGING_CLIENT_ID: worker_id,
            telemetry.TASK_TYPE: task.task_type,
            telemetry.TASK_ATTEMPT: task.attempt,
        }


def carrier() -> dict[str, str]:
    """The current trace as headers, for `resumed` in a child process."""
    if not is_traced():
        return {}
    from opentelemetry.propagate import inject

    found: dict[str, str] = {}
    inject(found)
    return found


def mark_failed(code: str) -> None:
    """Marks the current span as failed, where no exception passes through it."""
    if is_traced():
        from opentelemetry.trace import get_current_span

        _fail(get_current_span(), code, code)


def resumed(carried: Mapping[str, str]) -> AbstractContextManager[None]:
    """A context manager that continues the trace of `carrier`."""
    return _inside(_extracted(carried)) if carried and is_traced() else NOTHING


def _described(error: BaseException) -> dict[str, str]:
    """Span.record_exception raises where str(error) raises; these attributes do not."""
    return {
        telemetry.EXCEPTION_TYPE: type(error).__qualname__,
        telemetry.EXCEPTION_MESSAGE: message_of(error),
        telemetry.EXCEPTION_STACKTRACE: traceback_of(error),
    }


def _fail(span: Any, kind: str, message: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute(telemetry.ERROR_TYPE, kind)
    span.set_status(StatusCode.ERROR, message)


@contextlib.contextmanager
def _inside(context: "Context") -> Generator[None]:
    from opentelemetry.context import attach, detach

    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def _context_of(task: AssignedTask) -> "Context":
    headers = {"traceparent": task.traceparent, "tracestate": task.tracestate, "baggage": task.baggage}
    return _extracted({name: value for name, value in headers.items() if value})


def _extracted(carried: Mapping[str, str]) -> "Context":
    """The service sends W3C headers, whatever propagators the process is configured with."""
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract(carried, Context())
    return W3CBaggagePropagator().extract(carried, context)
