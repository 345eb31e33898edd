"""Spans of requests, submissions, claims, and of retries, replays and cancellations by hand.

Nothing here runs with tracing off. A request is traced if its caller traces it or, in the public API, if the sampler
starts a trace with it; workers' polls, probes and scrapes start none.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

from litestar import Request

from tideq.api.edge.problems import FAILURE, TYPE_PREFIX, problem_of
from tideq.api.metrics.request_metrics import ProcessMetrics, RequestTimer
from tideq.queue_core.errors import QueueError
from tideq.queue_core.task import Claim, ClaimedTask, Definition, Task, TraceContext
from tideq.queue_core.telemetry import names as telemetry
from tideq.queue_core.telemetry.spans import (
    CLIENT,
    INTERNAL,
    PRODUCER,
    SERVER,
    Span,
    SpanError,
    Tracing,
    messaging_attributes,
)
from tideq.queue_core.telemetry.trace_context import TraceParent, parse_traceparent, requeue_span_id, sampled_parent

SPAN = "tideq.span"
"""Key of a traced request's span in its ASGI scope."""
MAX_PATH_CHARACTERS = 256
ROOTS = "/api/"


class RequestTracer:
    """Starts the timer of each request; the timer of a traced request records a span named by its route."""

    def __init__(self, tracing: Tracing, metrics: ProcessMetrics) -> None:
        self._metrics = metrics
        self._tracing = tracing

    def begin(self, scope: Any) -> RequestTimer:
        route, parent = scope["path_template"], _parent(scope["headers"])
        if parent is None and not route.startswith(ROOTS):
            return RequestTimer(self._metrics, scope)
        context = self._tracing.begin(parent, route)
        if not context.is_sampled:
            return RequestTimer(self._metrics, scope)
        scope[SPAN] = span = RequestSpan(self._metrics, scope, self._tracing, context, parent.span_id if parent else "")
        return span


class RequestSpan(RequestTimer):
    """Until the request ends, its handler may add attributes and links."""

    def __init__(
        self, metrics: ProcessMetrics, scope: Any, tracing: Tracing, context: TraceParent, parent_id: str
    ) -> None:
        super().__init__(metrics, scope)
        self.tracing = tracing
        self.context = context
        self.links: tuple[TraceParent, ...] = ()
        self.attributes: dict[str, str | int] = {}
        self._parent_id = parent_id
        self._began_ns = time.time_ns()

    def end(self, status: int) -> None:
        super().end(status)
        method, route = self._scope["method"], self._scope["path_template"]
        attributes = {
            telemetry.HTTP_METHOD: method,
            telemetry.HTTP_ROUTE: route,
            telemetry.HTTP_STATUS: status,
            telemetry.URL_SCHEME: self._scope["scheme"],
            telemetry.URL_PATH: self._scope["path"][:MAX_PATH_CHARACTERS],
            **self.attributes,
        }
        error: Exception | None = self._scope.get(FAILURE)
        failure = _span_error(error) if error is not None and status >= 500 else None
        times = self._began_ns, time.time_ns()
        self.tracing.record(
            Span(
                f"{method} {route}",
                SERVER,
                self.context,
                self._parent_id,
                *times,
                attributes,
                failure,
                links=self.links,
            )
        )


def span_of(request: Request[Any, Any, Any]) -> RequestSpan | None:
    """The span of a traced request."""
    return request.scope.get(SPAN)  # type: ignore[return-value] - ours


class SendSpan:
    """A submission's span, the parent of its tasks' spans. `trace` is stored with the tasks.

    If the request is not sampled, the tasks keep its trace context, or none: a trace that is not exported would be a
    dead link and 55 bytes a task.
    """

    def __init__(self, request: Request[Any, Any, Any], incoming: TraceContext, queue_name: str) -> None:
        self.trace = incoming
        self._parent = parent = span_of(request)
        self._queue_name = queue_name
        self._about: dict[str, str | int] = {}
        if parent is not None:
            self._context, self._began_ns = parent.tracing.begin(parent.context, telemetry.SEND), time.time_ns()
            self.trace = TraceContext(str(self._context), incoming.tracestate, incoming.baggage)

    def __enter__(self) -> "SendSpan":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._parent is None:
            return
        failure = _span_error(error) if isinstance(error, Exception) else None
        attributes = messaging_attributes(telemetry.SEND, self._queue_name) | self._about
        ids, times = (self._context, self._parent.context.span_id), (self._began_ns, time.time_ns())
        self._parent.tracing.record(
            Span(f"{telemetry.SEND} {self._queue_name}", PRODUCER, *ids, *times, attributes, failure)
        )

    def sent(self, task_ids: Sequence[str]) -> None:
        """A sampled batch makes a span for each task, so it uses up that much of the sampling rate."""
        if self._parent is not None:
            self._about = _about(task_ids)
            self._parent.tracing.charge(len(task_ids) - 1)


def trace_received(tracing: Tracing, queue_name: str, worker_id: str, claim: Claim, began_ns: int) -> None:
    """Records one span in each sampled trace of the claimed tasks: tasks of one batch share it."""
    ended_ns, by_sender = time.time_ns(), defaultdict[str, list[ClaimedTask]](list)
    for task in claim.tasks:
        if task.definition.trace is not None:
            by_sender[task.definition.trace.traceparent].append(task)
    for traceparent, tasks in by_sender.items():
        if sender := sampled_parent(traceparent):
            attributes = messaging_attributes(telemetry.RECEIVE, queue_name) | _about([task.task_id for task in tasks])
            attributes[telemetry.MESSAGING_CLIENT_ID] = worker_id
            if len(tasks) == 1:
                attributes[telemetry.TASK_TYPE] = tasks[0].definition.task_type
                attributes[telemetry.TASK_ATTEMPT] = tasks[0].attempt
            # A claim may have begun before the task was submitted: the span starts with the later of the two.
            least_ns = min(_submitted_ns(tasks[0].task_id), ended_ns)
            ids, times = (tracing.begin(sender, telemetry.RECEIVE), sender.span_id), (max(began_ns, least_ns), ended_ns)
            tracing.record(Span(f"{telemetry.RECEIVE} {queue_name}", CLIENT, *ids, *times, attributes))


class OperationSpans:
    """Records the retries, the replays or the cancellation of one request, in its trace and in those of the tasks.

    Each task's trace gets a span of its own, which links to the request's span; after a retry or replay, the monitor
    links the execution that starts to it. If the request is for one task, its span gets the task's id and links back.
    """

    def __init__(
        self, tracing: Tracing, request: Request[Any, Any, Any], verb: str, queue_name: str, task_id: str | None
    ) -> None:
        self._tracing, self._verb, self._queue_name = tracing, verb, queue_name
        self._request_span = span_of(request)
        self._is_of_one = task_id is not None
        self._began_ns = time.time_ns()
        if self._request_span is not None and task_id is not None:
            self._request_span.attributes[telemetry.MESSAGING_MESSAGE_ID] = task_id

    def __call__(self, task_id: str, definition: Definition, at_ms: int) -> None:
        """Call this right after the requeue: without the span, the monitor links to one that does not exist."""
        if sender := _sender_of(definition):
            self._record(task_id, sender, sender.child(requeue_span_id(task_id, str(at_ms))))
            if not self._is_of_one:
                self._tracing.charge(1)
                self._began_ns = time.time_ns()

    async def cancelled(self, task_id: str, read: Callable[[str], Awaitable[Task]]) -> None:
        # The operation is done: a store that fails now costs the span, not the response.
        with contextlib.suppress(QueueError):
            if sender := _sender_of((await read(task_id)).definition):
                self._record(task_id, sender, self._tracing.begin(sender, self._verb))

    def _record(self, task_id: str, sender: TraceParent, context: TraceParent) -> None:
        request_span = self._request_span
        if request_span is not None and self._is_of_one:
            request_span.links = (context,)
        attributes = messaging_attributes(self._verb, self._queue_name) | _about([task_id])
        name, times = f"{self._verb} {self._queue_name}", (self._began_ns, time.time_ns())
        links = () if request_span is None else (request_span.context,)
        self._tracing.record(Span(name, INTERNAL, context, sender.span_id, *times, attributes, links=links))


def _sender_of(definition: Definition) -> TraceParent | None:
    return sampled_parent(definition.trace.traceparent) if definition.trace is not None else None


def _about(task_ids: Sequence[str]) -> dict[str, str | int]:
    if len(task_ids) == 1:
        return {telemetry.MESSAGING_MESSAGE_ID: task_ids[0]}
    return {telemetry.MESSAGING_BATCH_COUNT: len(task_ids)}


def _submitted_ns(task_id: str) -> int:
    """The end of the millisecond in the task's id."""
    return (int(task_id.replace("-", "")[:12], 16) + 1) * 1_000_000 - 1


def _span_error(error: Exception) -> SpanError:
    """The problem's type and title, without its detail, which may contain submitted values."""
    document, _ = problem_of(error)
    return SpanError(document.type.removeprefix(TYPE_PREFIX), document.title)


def _parent(headers: Sequence[tuple[bytes, bytes]]) -> TraceParent | None:
    for name, value in headers:
        if name == b"traceparent":
            return parse_traceparent(value.decode("latin-1"))
    return None
