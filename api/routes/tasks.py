"""Producers' calls: submit, look, wait, explain, cancel, retry."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, delete, get, post
from litestar.params import FromPath, QueryParameter

from tideq.api import recall, schemas
from tideq.api.answers import created, json_answer
from tideq.api.auth import Caller, require_client
from tideq.api.calls import (
    ADMISSION,
    BATCH_KEY,
    IDEMPOTENCY_KEY,
    LOCATION,
    MAX_BATCH_KEY_LENGTH,
    RATE_LIMIT,
    TRACE,
    call,
    leads_to,
)
from tideq.api.explanations import explanation_out, forgotten_out
from tideq.api.payloads import check_document, check_names_of_rows, decode, searchable_in
from tideq.api.presence import while_present
from tideq.api.problems import RequestError, UnprocessableContent
from tideq.api.rate_limits import rate_limit_headers
from tideq.api.routes import history
from tideq.api.schemas.base import EMPTY_OBJECT
from tideq.api.service import InjectedService, Service
from tideq.api.settings import MAX_BULK_BODY_BYTES
from tideq.api.tracing import Sending
from tideq.queue_core import telemetry
from tideq.queue_core.engine.checks import MAX_KEY_LENGTH
from tideq.queue_core.errors import HistoryUnavailable, TaskNotFound, WrongState
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask, TraceContext
from tideq.queue_core.trace_context import is_traceparent

Http = Request[Caller, Any, Any]


TO_THE_TASK = leads_to(
    *(f"tasks_{verb}" for verb in ("read", "wait", "explain", "cancel", "retry")), task_id="/task_id"
)
TO_THE_FIRST = leads_to("tasks_read", "tasks_explain", "tasks_cancel", task_id="/tasks/0/task_id")


@post(
    "/",
    opt=call(
        "producer",
        body=schemas.SubmitIn,
        answer=schemas.SubmittedOut,
        refuses=(*ADMISSION, HistoryUnavailable),
        headers=(IDEMPOTENCY_KEY, *TRACE),
        answer_headers=(LOCATION, *RATE_LIMIT),
        links=TO_THE_TASK,
        is_frequent=True,
    ),
)
async def submit(request: Http, service: InjectedService) -> Response[bytes]:
    """Submit one task."""
    submission = decode(await request.body(), schemas.SubmitIn)
    sending = _sending(request, service)
    task = _new_task(request, service, submission, sending.trace, _header_key(request))
    await service.durability.check({submission.durability})
    with sending:
        answer = await recall.submit(service, task)
        sending.sent([answer.task_id])
    found = await recall.known_tasks(service, [answer])
    await service.durability.reach({submission.durability}, *found.still_in_store([answer]))
    known = found.get(answer.task_id)
    wait_seconds = await service.pace.estimate(known.lane_position if known else answer.lane_position)
    document = schemas.submitted_out(answer, known, wait_seconds, submission.durability)
    return created(document, f"/api/v1/tasks/{answer.task_id}", rate_limit_headers(answer.bucket))


@post(
    "/batch",
    request_max_body_size=MAX_BULK_BODY_BYTES,
    opt=call(
        "producer",
        body=schemas.BatchIn,
        answer=schemas.BatchOut,
        refuses=(*ADMISSION, HistoryUnavailable),
        headers=(BATCH_KEY, *TRACE),
        answer_headers=RATE_LIMIT,
        links=TO_THE_FIRST,
        is_frequent=True,
    ),
)
async def submit_batch(request: Http, service: InjectedService) -> Response[bytes]:
    """Submit up to 1 000 tasks, all or none.

    An `Idempotency-Key` stands for the whole batch, but for tasks that have a key of their own. The same batch again is
    answered with the same tasks; another one, longer or shorter, is refused.
    """
    body, key = await request.body(), _header_key(request, MAX_BATCH_KEY_LENGTH)
    batch = decode(body, schemas.BatchIn)
    given = [task.parameters for task in batch.tasks if task.parameters is not EMPTY_OBJECT]
    check_names_of_rows(body, "tasks", len(batch.tasks) + len(given), given)
    sending = _sending(request, service)
    trace = sending.trace
    keys, size = _places_of(key, batch.tasks), len(batch.tasks) if key else 0
    try:
        tasks = [
            _new_task(request, service, task, trace, own_key, size)
            for task, own_key in zip(batch.tasks, keys, strict=True)
        ]
    except RequestError:
        # Its place is only told where it is wanted: writing it down for each task takes a twentieth of a batch's time.
        for row, task in enumerate(batch.tasks):
            _new_task(request, service, task, trace, None, size, f"tasks/{row}/")
        raise
    levels = {task.durability for task in batch.tasks}
    await service.durability.check(levels)
    with sending:
        answers = await recall.submit_many(service, tasks, wants_position=batch.wants_positions)
        sending.sent([answer.task_id for answer in answers])
    known = await recall.known_tasks(service, answers)
    await service.durability.reach(levels, *known.still_in_store(answers))
    rows = [
        schemas.submitted_out(answer, known.get(answer.task_id), None, asked.durability)
        for asked, answer in zip(batch.tasks, answers, strict=True)
    ]
    if batch.wants_positions:
        estimates = await service.pace.estimates([row.queue_position for row in rows])
        for row, seconds in zip(rows, estimates, strict=True):
            row.estimated_wait_seconds = seconds
    return created(schemas.BatchOut(tasks=rows), headers=rate_limit_headers(answers[0].bucket))


@get(
    "/{task_id:str}",
    opt=call(
        "producer",
        "viewer",
        answer=(schemas.TaskOut, schemas.RecordedTaskOut),
        refuses=(TaskNotFound, HistoryUnavailable),
    ),
)
async def read(
    task_id: FromPath[str],
    service: InjectedService,
    include_history: Annotated[
        bool, QueryParameter(name="include_history", description="With every transition it made.")
    ] = False,
) -> Response[bytes]:
    """A task as it is now, however long ago it ended."""
    task = await recall.find(service, task_id)
    document = schemas.task_out(task, await service.pace.estimate(task.lane_position))
    if not include_history:
        return json_answer(document)
    way = await recall.archive_of(service).recall.way(task)
    return json_answer(schemas.recorded_task_out(document, way))


@get(
    "/{task_id:str}/wait",
    opt=call("producer", "viewer", answer=schemas.TaskOut, refuses=(TaskNotFound, HistoryUnavailable)),
)
async def wait(
    request: Http,
    task_id: FromPath[str],
    service: InjectedService,
    timeout_seconds: Annotated[
        float, QueryParameter(name="timeout_seconds", ge=0, le=30, description="How long to wait.")
    ] = 30.0,
) -> Response[bytes]:
    """The task once it is finished, or as it is when the time is up."""
    task = await while_present(request, service.gate, recall.wait(service, task_id, timeout_seconds))
    return json_answer(schemas.task_out(task, await service.pace.estimate(task.lane_position)))


@get(
    "/{task_id:str}/explain",
    opt=call("producer", "viewer", answer=schemas.ExplanationOut, refuses=(TaskNotFound, HistoryUnavailable)),
)
async def explain(task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Why the task is where it is."""
    try:
        return json_answer(explanation_out(await service.engine.insight.explain(task_id)))
    except TaskNotFound:
        return json_answer(forgotten_out(await recall.find_forgotten(service, task_id)))


@delete(
    "/{task_id:str}",
    status_code=200,
    opt=call(
        "producer",
        answer=(schemas.CancelOut, schemas.PurgedOut),
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
        await recall.purge(service, task_id)
        await service.audit.note(request.user.name, "purge", task_id)
        return json_answer(schemas.PurgedOut(task_id=task_id))
    async with service.cancelling(request, task_id):
        was, worker = await recall.cancel(service, task_id)
    return json_answer(
        schemas.CancelOut(task_id=task_id, was_executing=was == TaskState.EXECUTING, worker_notified=bool(worker))
    )


@post(
    "/{task_id:str}/retry",
    status_code=200,
    opt=call(
        "producer",
        body=schemas.RetryIn,
        needs_body=False,
        answer=schemas.RetryOut,
        refuses=recall.REVIVAL,
        links=TO_THE_TASK,
    ),
)
async def retry(request: Http, task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Run a failed, dead or cancelled task again."""
    asked = decode(await request.body() or b"{}", schemas.RetryIn)
    orders = service.orders(request, telemetry.RETRY, task_id)
    return json_answer(await recall.revive(service, service.engine.queue.retry, task_id, asked, orders))


def _new_task(
    request: Http,
    service: Service,
    submission: schemas.SubmitIn,
    trace: TraceContext,
    header_key: str | None,
    batch_size: int = 0,
    place: str = "",
) -> NewTask:
    parameters = check_document("parameters", bytes(submission.parameters), place)
    if not parameters.startswith(b"{"):
        raise UnprocessableContent("parameters must be an object", pointer=f"/{place}parameters")
    if submission.client_id is not None:
        require_client(request.user, submission.client_id, place)
    task = submission.to_domain(parameters, request.user.name, header_key, trace, batch_size)
    names = service.history.searchable.get(task.task_type) if service.history else None
    return msgspec.structs.replace(task, searchable=searchable_in(parameters, names)) if names else task


def _header_key(request: Http, max_length: int = MAX_KEY_LENGTH) -> str | None:
    """A structured-field string, so quoted; the bare form is common and taken too. Checked even where unused."""
    key = request.headers.get("idempotency-key")
    if key is not None and len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if key is not None and not 1 <= len(key) <= max_length:
        raise UnprocessableContent(f"Idempotency-Key: must have 1 … {max_length} characters")
    return key


def _places_of(key: str | None, tasks: Sequence[schemas.SubmitIn]) -> list[str | None]:
    """Where no task has a key or an id of its own, the batch's for all; else that with the place of each task, but for
    the last one's, so that whatever comes under the key meets it.
    """
    if key is None or not any(task.idempotency_key is not None or task.task_id is not None for task in tasks):
        return [key and f"{key}/"] * len(tasks)
    last = max((row for row, task in enumerate(tasks) if task.idempotency_key is None), default=0)
    return [f"{key}/" if row == last else f"{key}/{row}" for row in range(len(tasks))]


def _sending(request: Http, service: Service) -> Sending:
    return Sending(service.tracing, request, _trace(request), service.settings.queue.queue_name)


def _trace(request: Http) -> TraceContext:
    """Ignored unless it is what W3C Trace Context says it must be."""
    headers = request.headers
    traceparent = headers.get("traceparent", "")
    if not is_traceparent(traceparent):
        return TraceContext()
    return TraceContext(traceparent, headers.get("tracestate", "")[:512], headers.get("baggage", "")[:8192])


router = Router(
    "/api/v1/tasks",
    route_handlers=[submit, submit_batch, read, wait, explain, cancel, retry, history.tasks, history.clean_up],
)
