"""Spans of calls: every request by its route, every submission as sent, every claim as received.

Nothing of this runs where nothing is traced. A request is traced if its caller traces it, or, for the public API, if
the sampler begins a trace with it; workers' polls, probes and scrapes would only be noise.
"""

import time
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Any

from litestar import Request
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from tideq.api.presence import CallerGone
from tideq.api.problems import TYPE_PREFIX, problem_of
from tideq.queue_core import telemetry
from tideq.queue_core.task import Claim, ClaimedTask, TraceContext
from tideq.queue_core.trace_context import TraceParent, is_sampled, parse_traceparent
from tideq.queue_core.tracing import CLIENT, PRODUCER, SERVER, Attributes, Span, SpanError, Tracing

SPAN = "tideq.span"
"""The request's own span, in its scope."""
ROOTS = "/api/"
GONE = 499


class RequestTracer:
    """Behind the routing, so that spans are named by routes and never by the paths people make up."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context: Any = scope
        parent = _parent(context["headers"])
        if parent is None and not context["path_template"].startswith(ROOTS):
            return await self._app(scope, receive, send)
        span = self._tracing.begin(parent, context["path_template"])
        context[SPAN] = span
        if not span.is_sampled:
            return await self._app(scope, receive, send)
        return await self._traced(context, span, parent, receive, send)

    async def _traced(
        self, scope: Any, context: TraceParent, parent: TraceParent | None, receive: Receive, send: Send
    ) -> None:
        began_ns, status, error = time.time_ns(), GONE, None

        def noting(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            return send(message)

        try:
            await self._app(scope, receive, noting)  # type: ignore[arg-type] - messages of every kind
        except Exception as failure:
            status = GONE if isinstance(failure, CallerGone) else problem_of(failure)[0].status
            error = span_error(failure) if status >= 500 else None
            raise
        finally:
            name = f"{scope['method']} {scope['path_template']}"
            parent_id = parent.span_id if parent else ""
            ended_ns, attributes = time.time_ns(), _request_attributes(scope, status)
            self._tracing.record(Span(name, SERVER, context, parent_id, began_ns, ended_ns, attributes, error))


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
        self._ids: Sequence[str] = ()
        parent: TraceParent | None = request.scope.get(SPAN) if tracing else None  # type: ignore[assignment] - ours
        if tracing is not None and parent is not None and parent.is_sampled:
            self._tracing, self._parent = tracing, parent
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
        ended_ns, name = time.time_ns(), f"{telemetry.SEND} {self._queue}"
        context, parent_id = self._context, self._parent.span_id
        attributes = self._attributes()
        self._tracing.record(Span(name, PRODUCER, context, parent_id, self._began_ns, ended_ns, attributes, failure))

    def sent(self, task_ids: Sequence[str]) -> None:
        """A sampled batch makes spans for each of its tasks: that much less is sampled afterwards."""
        if self._tracing is not None:
            self._ids = task_ids
            self._tracing.charge(len(task_ids) - 1)

    def _attributes(self) -> Attributes:
        common = messaging(telemetry.SEND, self._queue)
        if len(self._ids) == 1:
            return {**common, telemetry.MESSAGING_MESSAGE_ID: self._ids[0]}
        return {**common, telemetry.MESSAGING_BATCH_COUNT: len(self._ids)}


def tell_received(tracing: Tracing, queue: str, worker_id: str, claim: Claim, began_ns: int) -> None:
    """A span in every sampled trace that the claimed tasks belong to: those of a batch share one."""
    ended_ns, by_sender = time.time_ns(), defaultdict[str, list[ClaimedTask]](list)
    for task in claim.tasks:
        trace = task.definition.trace
        if trace is not None and is_sampled(trace.traceparent):
            by_sender[trace.traceparent].append(task)
    for traceparent, tasks in by_sender.items():
        sender = parse_traceparent(traceparent)
        if sender is not None:
            context, name = tracing.begin(sender, telemetry.RECEIVE), f"{telemetry.RECEIVE} {queue}"
            attributes = {**_received(tasks, queue), telemetry.MESSAGING_CLIENT_ID: worker_id}
            tracing.record(Span(name, CLIENT, context, sender.span_id, began_ns, ended_ns, attributes))


def _received(tasks: Sequence[ClaimedTask], queue: str) -> Attributes:
    common = messaging(telemetry.RECEIVE, queue)
    if len(tasks) > 1:
        return {**common, telemetry.MESSAGING_BATCH_COUNT: len(tasks)}
    (task,) = tasks
    about = {telemetry.TASK_TYPE: task.definition.task_type, telemetry.TASK_ATTEMPT: task.attempt}
    return {**common, **about, telemetry.MESSAGING_MESSAGE_ID: task.task_id}


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
    found = next((value for name, value in headers if name == b"traceparent"), None)
    return parse_traceparent(found.decode("latin-1")) if found else None


def _request_attributes(scope: Any, status: int) -> Attributes:
    """The path is left out: it is the route and ids, which the tasks' own spans tell."""
    return {
        telemetry.HTTP_METHOD: scope["method"],
        telemetry.HTTP_ROUTE: scope["path_template"],
        telemetry.HTTP_STATUS: status,
        telemetry.URL_SCHEME: scope["scheme"],
    }
