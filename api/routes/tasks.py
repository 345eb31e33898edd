"""Tasks: submit, list, read, wait, explain, cancel, retry, clean up."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, delete, get, post
from litestar.params import FromPath, QueryParameter

from tideq.api import task_lookup
from tideq.api.edge.auth import Caller, require_client
from tideq.api.edge.body import check_document, check_names_of_rows, decode, searchable_in
from tideq.api.edge.disconnect import cancel_on_disconnect
from tideq.api.edge.problems import RequestError, UnprocessableContent
from tideq.api.edge.responses import created, json_response, rate_limit_headers
from tideq.api.explanations import expired_out, explanation_out
from tideq.api.operations import (
    ADMISSION,
    BATCH_KEY,
    IDEMPOTENCY_KEY,
    LOCATION,
    MAX_BATCH_KEY_LENGTH,
    RATE_LIMIT,
    TRACE,
    link_to,
    operation,
)
from tideq.api.request_spans import SendSpan
from tideq.api.routes import history
from tideq.api.schemas.base import EMPTY_OBJECT
from tideq.api.schemas.history import RecordedTaskOut, recorded_task_out
from tideq.api.schemas.submission import BatchIn, BatchOut, SubmitIn, SubmittedOut, submitted_out
from tideq.api.schemas.tasks import CancelOut, ExplanationOut, PurgedOut, RetryIn, RetryOut, TaskOut, task_out
from tideq.api.service import InjectedService, Service
from tideq.api.settings import MAX_BULK_BODY_BYTES
from tideq.queue_core.durability import Durability
from tideq.queue_core.errors import HistoryUnavailable, TaskNotFound, WrongState
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask, TraceContext
from tideq.queue_core.telemetry import names as telemetry
from tideq.queue_core.telemetry.trace_context import is_traceparent
from tideq.queue_core.validation import MAX_KEY_LENGTH

Http = Request[Caller, Any, Any]


TO_THE_TASK = link_to(*(f"tasks_{verb}" for verb in ("read", "wait", "explain", "cancel", "retry")), task_id="/task_id")
TO_THE_FIRST = link_to("tasks_read", "tasks_explain", "tasks_cancel", task_id="/tasks/0/task_id")


@post(
    "/",
    opt=operation(
        "producer",
        body=SubmitIn,
        answer=SubmittedOut,
        refuses=(*ADMISSION, HistoryUnavailable),
        headers=(IDEMPOTENCY_KEY, *TRACE),
        answer_headers=(LOCATION, *RATE_LIMIT),
        links=TO_THE_TASK,
        is_hot=True,
    ),
)
async def submit(request: Http, service: InjectedService) -> Response[bytes]:
    """Submit one task."""
    submission = decode(await request.body(), SubmitIn)
    send_span = _send_span(request, service)
    task = _new_task(request, service, submission, send_span.trace, _header_key(request))
    levels = {submission.durability} - {Durability.STORE}
    if levels:
        await service.durability.check(levels)
    with send_span:
        answer = await task_lookup.submit(service, task)
        send_span.sent([answer.task_id])
    existing = task_lookup.NO_TASKS if answer.is_new else await task_lookup.existing_tasks(service, [answer])
    if levels:
        await service.durability.wait(levels, *existing.still_in_store([answer]))
    existing_task = existing.get(answer.task_id)
    wait_seconds = await service.wait_estimator.estimate(
        existing_task.lane_position if existing_task else answer.lane_position
    )
    document = submitted_out(answer, existing_task, wait_seconds, submission.durability)
    return created(document, f"/api/v1/tasks/{answer.task_id}", rate_limit_headers(answer.bucket))


@post(
    "/batch",
    request_max_body_size=MAX_BULK_BODY_BYTES,
    opt=operation(
        "producer",
        body=BatchIn,
        answer=BatchOut,
        refuses=(*ADMISSION, HistoryUnavailable),
        headers=(BATCH_KEY, *TRACE),
        answer_headers=RATE_LIMIT,
        links=TO_THE_FIRST,
        is_hot=True,
    ),
)
async def submit_batch(request: Http, service: InjectedService) -> Response[bytes]:
    """Submit up to 1 000 tasks, all or none.

    An `Idempotency-Key` applies to the whole batch, except for tasks with a key of their own. The same batch again
    returns the same tasks; a different batch with the same key, also a longer or shorter one, is refused.
    """
    body, key = await request.body(), _header_key(request, MAX_BATCH_KEY_LENGTH)
    batch = decode(body, BatchIn)
    given = [task.parameters for task in batch.tasks if task.parameters is not EMPTY_OBJECT]
    check_names_of_rows(body, "tasks", len(batch.tasks) + len(given), given)
    send_span = _send_span(request, service)
    trace = send_span.trace
    keys, size = _row_keys(key, batch.tasks), len(batch.tasks) if key else 0
    try:
        tasks = [
            _new_task(request, service, task, trace, own_key, size)
            for task, own_key in zip(batch.tasks, keys, strict=True)
        ]
    except RequestError:
        # Repeated with each task's index, for the error alone: making the index texts takes 5 % of a batch's time.
        for row, task in enumerate(batch.tasks):
            _new_task(request, service, task, trace, None, size, f"tasks/{row}/")
        raise
    levels = {task.durability for task in batch.tasks}
    await service.durability.check(levels)
    with send_span:
        answers = await task_lookup.submit_many(service, tasks, include_position=batch.include_positions)
        send_span.sent([answer.task_id for answer in answers])
    existing = await task_lookup.existing_tasks(service, answers)
    await service.durability.wait(levels, *existing.still_in_store(answers))
    rows = [
        submitted_out(answer, existing.get(answer.task_id), None, task.durability)
        for task, answer in zip(batch.tasks, answers, strict=True)
    ]
    if batch.include_positions:
        estimates = await service.wait_estimator.estimates([row.queue_position for row in rows])
        for row, seconds in zip(rows, estimates, strict=True):
            row.estimated_wait_seconds = seconds
    return created(BatchOut(tasks=rows), headers=rate_limit_headers(answers[0].bucket))


@get(
    "/{task_id:str}",
    opt=operation(
        "producer",
        "viewer",
        answer=(TaskOut, RecordedTaskOut),
        refuses=(TaskNotFound, HistoryUnavailable),
    ),
)
async def read(
    task_id: FromPath[str],
    service: InjectedService,
    include_history: Annotated[
        bool, QueryParameter(name="include_history", description="Include all transitions.")
    ] = False,
) -> Response[bytes]:
    """Read a task as it is now, however long ago it ended."""
    task = await task_lookup.find(service, task_id)
    document = task_out(task, await service.wait_estimator.estimate(task.lane_position))
    if not include_history:
        return json_response(document)
    trail = await task_lookup.history_of(service).expired.trail(task)
    return json_response(recorded_task_out(document, trail))


@get(
    "/{task_id:str}/wait",
    opt=operation("producer", "viewer", answer=TaskOut, refuses=(TaskNotFound, HistoryUnavailable)),
)
async def wait(
    request: Http,
    task_id: FromPath[str],
    service: InjectedService,
    timeout_seconds: Annotated[
        float, QueryParameter(name="timeout_seconds", ge=0, le=30, description="How long to wait.")
    ] = 30.0,
) -> Response[bytes]:
    """Wait until the task has ended, and return it; or as it is when the time is up."""
    task = await cancel_on_disconnect(
        request, service.authenticator, task_lookup.wait(service, task_id, timeout_seconds)
    )
    return json_response(task_out(task, await service.wait_estimator.estimate(task.lane_position)))


@get(
    "/{task_id:str}/explain",
    opt=operation("producer", "viewer", answer=ExplanationOut, refuses=(TaskNotFound, HistoryUnavailable)),
)
async def explain(task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Explain why the task has not started."""
    try:
        return json_response(explanation_out(await service.engine.insight.explain(task_id)))
    except TaskNotFound:
        return json_response(expired_out(await task_lookup.find_expired(service, task_id)))


@delete(
    "/{task_id:str}",
    status_code=200,
    opt=operation(
        "producer",
        answer=(CancelOut, PurgedOut),
        refuses=(TaskNotFound, WrongState, HistoryUnavailable),
        links=TO_THE_TASK,
    ),
)
async def cancel(
    request: Http,
    task_id: FromPath[str],
    service: InjectedService,
    purge: Annotated[bool, QueryParameter(name="purge", description="Remove a finished task.")] = False,
) -> Response[bytes]:
    """Cancel a live task, or with `purge=true` remove a finished one."""
    if purge:
        await task_lookup.purge(service, task_id)
        await service.audit.note(request.user.name, "purge", task_id)
        return json_response(PurgedOut(task_id=task_id))
    spans = service.operation_spans(request, telemetry.CANCEL, task_id)
    was, worker = await task_lookup.cancel(service, task_id)
    if spans is not None:
        await spans.cancelled(task_id, service.engine.queue.read)
    return json_response(
        CancelOut(task_id=task_id, was_executing=was == TaskState.EXECUTING, worker_notified=bool(worker))
    )


@post(
    "/{task_id:str}/retry",
    status_code=200,
    opt=operation(
        "producer",
        body=RetryIn,
        needs_body=False,
        answer=RetryOut,
        refuses=task_lookup.REQUEUE_ERRORS,
        links=TO_THE_TASK,
    ),
)
async def retry(request: Http, task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Run a failed, dead or cancelled task again."""
    body = decode(await request.body() or b"{}", RetryIn)
    spans = service.operation_spans(request, telemetry.RETRY, task_id)
    return json_response(await task_lookup.requeue(service, service.engine.queue.retry, task_id, body, spans))


def _new_task(
    request: Http,
    service: Service,
    submission: SubmitIn,
    trace: TraceContext,
    header_key: str | None,
    batch_size: int = 0,
    prefix: str = "",
) -> NewTask:
    parameters = check_document("parameters", bytes(submission.parameters), prefix)
    if not parameters.startswith(b"{"):
        raise UnprocessableContent("parameters must be an object", pointer=f"/{prefix}parameters")
    if submission.client_id is not None:
        require_client(request.user, submission.client_id, prefix)
    task = submission.to_domain(parameters, request.user.name, header_key, trace, batch_size)
    names = service.history.searchable.get(task.task_type) if service.history else None
    return msgspec.structs.replace(task, searchable=searchable_in(parameters, names)) if names else task


def _header_key(request: Http, max_length: int = MAX_KEY_LENGTH) -> str | None:
    """A structured-field string, so quoted; the unquoted form is common and accepted too. Checked even if unused."""
    key = request.headers.get("idempotency-key")
    if key is not None and len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if key is not None and not 1 <= len(key) <= max_length:
        raise UnprocessableContent(f"Idempotency-Key must have 1 to {max_length} characters")
    return key


def _row_keys(key: str | None, tasks: Sequence[SubmitIn]) -> list[str | None]:
    """The idempotency key of each task of a batch. If no task has a key or an id of its own, all share the batch's key.
    Otherwise each index is appended, except to the last task's, so that any batch under the key conflicts with it.
    """
    if key is None or not any(task.idempotency_key is not None or task.task_id is not None for task in tasks):
        return [key and f"{key}/"] * len(tasks)
    last = max((row for row, task in enumerate(tasks) if task.idempotency_key is None), default=0)
    return [f"{key}/" if row == last else f"{key}/{row}" for row in range(len(tasks))]


def _send_span(request: Http, service: Service) -> SendSpan:
    return SendSpan(request, _trace(request), service.settings.queue.queue_name)


def _trace(request: Http) -> TraceContext:
    """The request's trace context; empty if `traceparent` is not valid."""
    headers = request.headers
    traceparent = headers.get("traceparent", "")
    if not traceparent or not is_traceparent(traceparent):
        return TraceContext()
    return TraceContext(traceparent, headers.get("tracestate", "")[:512], headers.get("baggage", "")[:8192])


router = Router(
    "/api/v1/tasks",
    route_handlers=[submit, submit_batch, read, wait, explain, cancel, retry, history.tasks, history.clean_up],
)
