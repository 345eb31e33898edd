"""Spans of calls: every request by its route, every submission as sent, every claim as received.

Nothing of this runs where nothing is traced. A request is traced if its caller traces it, or, for the public API, if
the sampler begins a trace with it; workers' polls, probes and scrapes would only be noise.
"""

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

from litestar import Request

from tideq.api.meters import Meters, Note
from tideq.api.problems import TYPE_PREFIX, problem_of
from tideq.queue_core import telemetry
from tideq.queue_core.errors import QueueError
from tideq.queue_core.task import Claim, ClaimedTask, Definition, Task, TraceContext
from tideq.queue_core.trace_context import SAMPLED, TraceParent, is_sampled, parse_traceparent, revival_span_id
from tideq.queue_core.tracing import (
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

SPAN = "tideq.span"
"""The request's own span, in its scope."""
ABOUT, LINKS = "tideq.about", "tideq.links"
"""What a handler adds to that span."""
LEAST_NS = 1_000
"""A span of no length is taken for a broken one; clocks are set back."""
MAX_PATH_CHARACTERS = 256
ROOTS = "/api/"


class RequestTracer:
    """Begins requests' notes: those that are traced become spans, named by their routes."""

    def __init__(self, tracing: Tracing, meters: Meters) -> None:
        self._meters = meters
        self._tracing = tracing

    def begin(self, scope: Any) -> Note:
        route, parent = scope["path_template"], _parent(scope["headers"])
        if parent is None and not route.startswith(ROOTS):
            return Note(self._meters, scope)
        scope[SPAN] = span = self._tracing.begin(parent, route)
        if not span.flags & SAMPLED:
            return Note(self._meters, scope)
        return TracedNote(self._meters, scope, self._tracing, span, parent.span_id if parent else "")


class TracedNote(Note):
    def __init__(self, meters: Meters, scope: Any, tracing: Tracing, context: TraceParent, parent_id: str) -> None:
        super().__init__(meters, scope)
        self._tracing, self._context, self._parent_id = tracing, context, parent_id
        self._began_ns = time.time_ns()

    def end(self, status: int, error: Exception | None = None) -> None:
        super().end(status)
        failure = span_error(error) if error is not None and status >= 500 else None
        shape = _request_shape(self._scope["method"], self._scope["path_template"], status, self._scope["scheme"])
        scope, ended_ns = self._scope, _ended_after(self._began_ns)
        own = {telemetry.URL_PATH: scope["path"][:MAX_PATH_CHARACTERS], **scope.get(ABOUT, NONE)}
        links = scope.get(LINKS, ())
        ids = self._context, self._parent_id
        self._tracing.record(Span(shape, *ids, self._began_ns, ended_ns, own, failure, links=links))


class Sending:
    """One submission, as a span its tasks descend from. `trace` is what is stored with them.

    Where it is not sampled they keep the trace they came with, and have none if they came without: one that nobody
    keeps would be a dead link, and 55 bytes a task.
    """

    def __init__(
        self, tracing: Tracing | None, request: Request[Any, Any, Any], came: TraceContext, queue: str
    ) -> None:
        self.trace = came
        self._tracing: Tracing | None = None
        self._queue = queue
        self._own: Attributes = NONE
        parent: TraceParent | None = request.scope.get(SPAN) if tracing else None  # type: ignore[assignment] - ours
        if tracing is not None and parent is not None and parent.flags & SAMPLED:
            self._tracing, self._parent_id = tracing, parent.span_id
            self._context, self._began_ns = tracing.begin(parent, telemetry.SEND), time.time_ns()
            self.trace = TraceContext(str(self._context), came.tracestate, came.baggage)

    def __enter__(self) -> "Sending":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if self._tracing is None:
            return
        failure = span_error(error) if isinstance(error, Exception) else None
        shape, own = _send_shape(self._queue), self._own or {telemetry.MESSAGING_BATCH_COUNT: 0}
        ids = self._context, self._parent_id
        self._tracing.record(Span(shape, *ids, self._began_ns, _ended_after(self._began_ns), own, failure))

    def sent(self, task_ids: Sequence[str]) -> None:
        """A sampled batch makes spans for each of its tasks: that much less is sampled afterwards."""
        if self._tracing is None:
            return
        if len(task_ids) == 1:
            self._own = {telemetry.MESSAGING_MESSAGE_ID: task_ids[0]}
        else:
            self._own = {telemetry.MESSAGING_BATCH_COUNT: len(task_ids)}
            self._tracing.charge(len(task_ids) - 1)


def tell_received(tracing: Tracing, queue: str, worker_id: str, claim: Claim, began_ns: int) -> None:
    """A span in every sampled trace that the claimed tasks belong to: those of a batch share one."""
    ended_ns, by_sender = _ended_after(began_ns), defaultdict[str, list[ClaimedTask]](list)
    for task in claim.tasks:
        trace = task.definition.trace
        if trace is not None and is_sampled(trace.traceparent):
            by_sender[trace.traceparent].append(task)
    for traceparent, tasks in by_sender.items():
        sender = parse_traceparent(traceparent)
        if sender is not None:
            context, (shape, own) = tracing.begin(sender, telemetry.RECEIVE), _received(tasks, queue, worker_id)
            # Of a claim that was on its way already when the task was sent, the part that has to do with it.
            least_ns = min(_submitted_ns(tasks[0].task_id), ended_ns - LEAST_NS)
            tracing.record(Span(shape, context, sender.span_id, max(began_ns, least_ns), ended_ns, own))


class Orders:
    """Retries or replays that one request asks for: found from the trace of the request, and from their tasks' own.

    A request for one task names it. Each task's trace gets a span of its own, to which the monitor links the life that
    begins, and which links to the request; the request links back where it is for one task.
    """

    def __init__(
        self, tracing: Tracing, request: Request[Any, Any, Any], verb: str, queue: str, task_id: str | None
    ) -> None:
        self._tracing, self._request, self._verb, self._queue = tracing, request, verb, queue
        self._is_of_one = task_id is not None
        self._began_ns = time.time_ns()
        if task_id is not None:
            note_about(request, {telemetry.MESSAGING_MESSAGE_ID: task_id})

    def __call__(self, task_id: str, definition: Definition, at_ms: int) -> None:
        """To be called as soon as the new life is there: nothing may come between, or the life links to nothing."""
        sender = _sampled_sender(definition.trace)
        if sender is None:
            return
        context = sender.child(revival_span_id(task_id, str(at_ms)))
        _tell_order(self._tracing, self._request, self._verb, self._queue, task_id, sender, context, self._began_ns)
        if self._is_of_one:
            self._request.scope[LINKS] = (context,)  # type: ignore[literal-required] - ours
        else:
            self._tracing.charge(1)
            self._began_ns = time.time_ns()


@contextlib.asynccontextmanager
async def cancelling(
    tracing: Tracing | None,
    request: Request[Any, Any, Any],
    task_id: str,
    queue: str,
    read: Callable[[str], Awaitable[Task]],
) -> AsyncGenerator[None]:
    """Around a cancellation: the same, but that nothing links to its span except the request."""
    if tracing is None:
        yield
        return
    began_ns = time.time_ns()
    note_about(request, {telemetry.MESSAGING_MESSAGE_ID: task_id})
    yield
    # What was asked for is done: a store that goes away now costs the span, not the answer.
    with contextlib.suppress(QueueError):
        sender = _sampled_sender((await read(task_id)).definition.trace)
        if sender is not None:
            context = tracing.begin(sender, telemetry.CANCEL)
            request.scope[LINKS] = (context,)  # type: ignore[literal-required] - ours
            _tell_order(tracing, request, telemetry.CANCEL, queue, task_id, sender, context, began_ns)


def _sampled_sender(trace: TraceContext | None) -> TraceParent | None:
    """The span that a task's own trace begins with here."""
    return parse_traceparent(trace.traceparent) if trace is not None and is_sampled(trace.traceparent) else None


def _tell_order(
    tracing: Tracing,
    request: Request[Any, Any, Any],
    verb: str,
    queue: str,
    task_id: str,
    sender: TraceParent,
    context: TraceParent,
    began_ns: int,
) -> None:
    asking: TraceParent | None = request.scope.get(SPAN)  # type: ignore[assignment] - ours
    links = (asking,) if asking is not None and asking.flags & SAMPLED else ()
    own, ended_ns = {telemetry.MESSAGING_MESSAGE_ID: task_id}, _ended_after(began_ns)
    tracing.record(Span(_order_shape(verb, queue), context, sender.span_id, began_ns, ended_ns, own, links=links))


def note_about(request: Request[Any, Any, Any], own: Attributes) -> None:
    """For the request's own span, if there is one."""
    request.scope[ABOUT] = own  # type: ignore[literal-required] - ours


def _ended_after(began_ns: int) -> int:
    return max(time.time_ns(), began_ns + LEAST_NS)


def _submitted_ns(task_id: str) -> int:
    """The end of the millisecond that its id carries."""
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
    """Of one task, or of several that share no more than the queue and who got them."""
    common = {**messaging(telemetry.RECEIVE, queue), telemetry.MESSAGING_CLIENT_ID: worker_id}
    about = {telemetry.TASK_TYPE: task_type, telemetry.TASK_ATTEMPT: attempt} if attempt else {}
    return Shape(f"{telemetry.RECEIVE} {queue}", CLIENT, {**common, **about})


@functools.lru_cache(maxsize=1_024)
def _order_shape(verb: str, queue: str) -> Shape:
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
    """By the problem's name, and without its detail: that may tell what somebody submitted."""
    document, _ = problem_of(error)
    return SpanError(document.type.removeprefix(TYPE_PREFIX), document.title)


def _parent(headers: Sequence[tuple[bytes, bytes]]) -> TraceParent | None:
    for name, value in headers:
        if name == b"traceparent":
            return parse_traceparent(value.decode("latin-1"))
    return None
