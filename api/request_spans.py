"""Spans of requests, submissions and claims.

Nothing here runs with tracing off. A request is traced if its caller traces it or, in the public API, if the sampler
starts a trace with it; workers' polls, probes and scrapes start none.
"""

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
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
    NONE,
    PRODUCER,
    SERVER,
    Attributes,
    Shape,
    Span,
    SpanError,
    Tracing,
)
from tideq.queue_core.telemetry.trace_context import (
    SAMPLED,
    TraceParent,
    is_sampled,
    parse_traceparent,
    requeue_span_id,
)

SPAN = "tideq.span"
"""Key of the request's span in its ASGI scope."""
ATTRIBUTES, LINKS = "tideq.attributes", "tideq.links"
"""Keys of the attributes and links that a handler adds to that span."""
LEAST_NS = 1_000
"""Shortest span, since viewers treat a span without length as broken; the clock may have been set back."""
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
        scope[SPAN] = span = self._tracing.begin(parent, route)
        if not span.flags & SAMPLED:
            return RequestTimer(self._metrics, scope)
        return TracedTimer(self._metrics, scope, self._tracing, span, parent.span_id if parent else "")


class TracedTimer(RequestTimer):
    def __init__(
        self, metrics: ProcessMetrics, scope: Any, tracing: Tracing, context: TraceParent, parent_id: str
    ) -> None:
        super().__init__(metrics, scope)
        self._tracing, self._context, self._parent_id = tracing, context, parent_id
        self._began_ns = time.time_ns()

    def end(self, status: int) -> None:
        super().end(status)
        error: Exception | None = self._scope.get(FAILURE)
        failure = span_error(error) if error is not None and status >= 500 else None
        shape = _request_shape(self._scope["method"], self._scope["path_template"], status, self._scope["scheme"])
        scope, ended_ns = self._scope, _ended_after(self._began_ns)
        attributes = {telemetry.URL_PATH: scope["path"][:MAX_PATH_CHARACTERS], **scope.get(ATTRIBUTES, NONE)}
        links = scope.get(LINKS, ())
        ids = self._context, self._parent_id
        self._tracing.record(Span(shape, *ids, self._began_ns, ended_ns, attributes, failure, links=links))


class SendSpan:
    """A submission's span, the parent of its tasks' spans. `trace` is stored with the tasks.

    If the span is not sampled, the tasks keep the trace context of the request, or none: a trace that is not exported
    would be a dead link and 55 bytes a task.
    """

    def __init__(
        self, tracing: Tracing | None, request: Request[Any, Any, Any], incoming: TraceContext, queue: str
    ) -> None:
        self.trace = incoming
        self._tracing: Tracing | None = None
        self._queue = queue
        self._attributes: Attributes = NONE
        parent: TraceParent | None = request.scope.get(SPAN) if tracing else None  # type: ignore[assignment] - ours
        if tracing is not None and parent is not None and parent.flags & SAMPLED:
            self._tracing, self._parent_id = tracing, parent.span_id
            self._context, self._began_ns = tracing.begin(parent, telemetry.SEND), time.time_ns()
            self.trace = TraceContext(str(self._context), incoming.tracestate, incoming.baggage)

    def __enter__(self) -> "SendSpan":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._tracing is None:
            return
        failure = span_error(error) if isinstance(error, Exception) else None
        shape, attributes = _send_shape(self._queue), self._attributes or {telemetry.MESSAGING_BATCH_COUNT: 0}
        ids = self._context, self._parent_id
        self._tracing.record(Span(shape, *ids, self._began_ns, _ended_after(self._began_ns), attributes, failure))

    def sent(self, task_ids: Sequence[str]) -> None:
        """A sampled batch makes a span for each task, so it uses up that much of the sampling rate."""
        if self._tracing is None:
            return
        if len(task_ids) == 1:
            self._attributes = {telemetry.MESSAGING_MESSAGE_ID: task_ids[0]}
        else:
            self._attributes = {telemetry.MESSAGING_BATCH_COUNT: len(task_ids)}
            self._tracing.charge(len(task_ids) - 1)


def trace_received(tracing: Tracing, queue: str, worker_id: str, claim: Claim, began_ns: int) -> None:
    """Records one span in each sampled trace of the claimed tasks: tasks of one batch share it."""
    ended_ns, by_sender = _ended_after(began_ns), defaultdict[str, list[ClaimedTask]](list)
    for task in claim.tasks:
        trace = task.definition.trace
        if trace is not None and is_sampled(trace.traceparent):
            by_sender[trace.traceparent].append(task)
    for traceparent, tasks in by_sender.items():
        sender = parse_traceparent(traceparent)
        if sender is not None:
            context, (shape, own) = tracing.begin(sender, telemetry.RECEIVE), _received(tasks, queue, worker_id)
            # A claim may have begun before the task was submitted: the span starts with the later of the two.
            least_ns = min(_submitted_ns(tasks[0].task_id), ended_ns - LEAST_NS)
            tracing.record(Span(shape, context, sender.span_id, max(began_ns, least_ns), ended_ns, own))


class RequeueSpans:
    """Records the retries or replays of one request, so that they appear in its trace and in those of the tasks.

    Each task's trace gets a span of its own, which links to the request's span; the monitor links the execution that
    starts to it. If the request is for one task, its span gets the task's id and links back.
    """

    def __init__(
        self, tracing: Tracing, request: Request[Any, Any, Any], verb: str, queue: str, task_id: str | None
    ) -> None:
        self._tracing, self._request, self._verb, self._queue = tracing, request, verb, queue
        self._is_of_one = task_id is not None
        self._began_ns = time.time_ns()
        if task_id is not None:
            add_span_attributes(request, {telemetry.MESSAGING_MESSAGE_ID: task_id})

    def __call__(self, task_id: str, definition: Definition, at_ms: int) -> None:
        """Call this right after the requeue: without the span, the monitor links to one that does not exist."""
        sender = _sampled_sender(definition.trace)
        if sender is None:
            return
        context = sender.child(requeue_span_id(task_id, str(at_ms)))
        ids = task_id, sender, context
        _record_operation(self._tracing, self._request, self._verb, self._queue, *ids, self._began_ns)
        if self._is_of_one:
            self._request.scope[LINKS] = (context,)  # type: ignore[literal-required] - ours
        else:
            self._tracing.charge(1)
            self._began_ns = time.time_ns()


@contextlib.asynccontextmanager
async def cancel_span(
    tracing: Tracing | None,
    request: Request[Any, Any, Any],
    task_id: str,
    queue: str,
    read: Callable[[str], Awaitable[Task]],
) -> AsyncGenerator[None]:
    """Wraps a cancellation, so that it appears in the request's trace and in the task's.

    The request's span gets the task's id. The task's trace gets a span of its own, and both spans link to each other.
    """
    if tracing is None:
        yield
        return
    began_ns = time.time_ns()
    add_span_attributes(request, {telemetry.MESSAGING_MESSAGE_ID: task_id})
    yield
    # The operation is done: a store that fails now costs the span, not the response.
    with contextlib.suppress(QueueError):
        sender = _sampled_sender((await read(task_id)).definition.trace)
        if sender is not None:
            context = tracing.begin(sender, telemetry.CANCEL)
            request.scope[LINKS] = (context,)  # type: ignore[literal-required] - ours
            _record_operation(tracing, request, telemetry.CANCEL, queue, task_id, sender, context, began_ns)


def _sampled_sender(trace: TraceContext | None) -> TraceParent | None:
    """Returns the parent of the spans that this service adds to a task's trace, None if the trace is not sampled."""
    return parse_traceparent(trace.traceparent) if trace is not None and is_sampled(trace.traceparent) else None


def _record_operation(
    tracing: Tracing,
    request: Request[Any, Any, Any],
    verb: str,
    queue: str,
    task_id: str,
    sender: TraceParent,
    context: TraceParent,
    began_ns: int,
) -> None:
    """Records the span in the task's trace, with a link to the request's span."""
    caller: TraceParent | None = request.scope.get(SPAN)  # type: ignore[assignment] - ours
    links = (caller,) if caller is not None and caller.flags & SAMPLED else ()
    attributes, ended_ns = {telemetry.MESSAGING_MESSAGE_ID: task_id}, _ended_after(began_ns)
    shape = _operation_shape(verb, queue)
    tracing.record(Span(shape, context, sender.span_id, began_ns, ended_ns, attributes, links=links))


def add_span_attributes(request: Request[Any, Any, Any], attributes: Attributes) -> None:
    """Adds attributes to the request's span, if there is one."""
    request.scope[ATTRIBUTES] = attributes  # type: ignore[literal-required] - ours


def _ended_after(began_ns: int) -> int:
    return max(time.time_ns(), began_ns + LEAST_NS)


def _submitted_ns(task_id: str) -> int:
    """The end of the millisecond in the task's id."""
    return (int(task_id.replace("-", "")[:12], 16) + 1) * 1_000_000 - 1


def _received(tasks: Sequence[ClaimedTask], queue: str, worker_id: str) -> tuple[Shape, Attributes]:
    if len(tasks) > 1:
        return _receive_shape(queue, worker_id, "", 0), {telemetry.MESSAGING_BATCH_COUNT: len(tasks)}
    (task,) = tasks
    shape = _receive_shape(queue, worker_id, task.definition.task_type, task.attempt)
    return shape, {telemetry.MESSAGING_MESSAGE_ID: task.task_id}


@functools.lru_cache(maxsize=1_024)
def _request_shape(method: str, route: str, status: int, scheme: str) -> Shape:
    attributes = {
        telemetry.HTTP_METHOD: method,
        telemetry.HTTP_ROUTE: route,
        telemetry.HTTP_STATUS: status,
        telemetry.URL_SCHEME: scheme,
    }
    return Shape(f"{method} {route}", SERVER, attributes)


@functools.lru_cache(maxsize=1_024)
def _send_shape(queue: str) -> Shape:
    return Shape(f"{telemetry.SEND} {queue}", PRODUCER, messaging(telemetry.SEND, queue))


@functools.lru_cache(maxsize=4_096)
def _receive_shape(queue: str, worker_id: str, task_type: str, attempt: int) -> Shape:
    """For one task, or with attempt 0 for several."""
    common = {**messaging(telemetry.RECEIVE, queue), telemetry.MESSAGING_CLIENT_ID: worker_id}
    about = {telemetry.TASK_TYPE: task_type, telemetry.TASK_ATTEMPT: attempt} if attempt else {}
    return Shape(f"{telemetry.RECEIVE} {queue}", CLIENT, {**common, **about})


@functools.lru_cache(maxsize=1_024)
def _operation_shape(verb: str, queue: str) -> Shape:
    attributes = {
        name: value for name, value in messaging(verb, queue).items() if name != telemetry.MESSAGING_OPERATION_TYPE
    }
    return Shape(f"{verb} {queue}", INTERNAL, attributes)


def messaging(operation: str, queue: str) -> dict[str, str | int]:
    return {
        telemetry.MESSAGING_SYSTEM: telemetry.SYSTEM,
        telemetry.MESSAGING_OPERATION_NAME: operation,
        telemetry.MESSAGING_OPERATION_TYPE: operation,
        telemetry.MESSAGING_DESTINATION: queue,
    }


def span_error(error: Exception) -> SpanError:
    """The problem's type and title, without its detail, which may contain submitted values."""
    document, _ = problem_of(error)
    return SpanError(document.type.removeprefix(TYPE_PREFIX), document.title)


def _parent(headers: Sequence[tuple[bytes, bytes]]) -> TraceParent | None:
    for name, value in headers:
        if name == b"traceparent":
            return parse_traceparent(value.decode("latin-1"))
    return None
