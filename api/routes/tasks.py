"""Producers' calls: submit, look, wait, explain, cancel, retry."""

import re
from typing import Annotated, Any

from litestar import Request, Response, Router, delete, get, post
from litestar.params import FromPath, QueryParameter

from tideq.api import schemas
from tideq.api.answers import created, json_answer
from tideq.api.auth import Caller, for_roles
from tideq.api.explanations import explanation_out
from tideq.api.payloads import check_document, decode
from tideq.api.presence import while_present
from tideq.api.problems import UnprocessableContent
from tideq.api.service import InjectedService
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask, TraceContext

Http = Request[Caller, Any, Any]
TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@post("/", opt=for_roles("producer"))
async def submit(request: Http, service: InjectedService) -> Response[bytes]:
    """Submit one task."""
    submission = decode(await request.body(), schemas.SubmitIn)
    answer = await service.engine.queue.submit(_new_task(request, submission, _header_key(request)))
    known = None if answer.is_new else (await service.engine.queue.read_many([answer.task_id]))[0]
    return created(schemas.submitted_out(answer, known), f"/api/v1/tasks/{answer.task_id}")


@post("/batch", opt=for_roles("producer"))
async def submit_batch(request: Http, service: InjectedService) -> Response[bytes]:
    """Submit up to 1 000 tasks, all or none."""
    batch = decode(await request.body(), schemas.BatchIn)
    tasks = [_new_task(request, submission, None, f"tasks/{row}/") for row, submission in enumerate(batch.tasks)]
    answers = await service.engine.queue.submit_many(tasks)
    ids = [answer.task_id for answer in answers if not answer.is_new]
    known = dict(zip(ids, await service.engine.queue.read_many(ids) if ids else [], strict=True))
    return created(
        schemas.BatchOut(tasks=[schemas.submitted_out(answer, known.get(answer.task_id)) for answer in answers])
    )


@get("/{task_id:str}", opt=for_roles("producer", "viewer"))
async def read(task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """A task as it is now."""
    return json_answer(schemas.task_out(await service.engine.queue.read(task_id)))


@get("/{task_id:str}/wait", opt=for_roles("producer", "viewer"))
async def wait(
    request: Http,
    task_id: FromPath[str],
    service: InjectedService,
    timeout_seconds: Annotated[float, QueryParameter(name="timeout_seconds", ge=0, le=30)] = 30.0,
) -> Response[bytes]:
    """The task once it is finished, or as it is when the time is up."""
    return json_answer(schemas.task_out(await while_present(request, service.wait(task_id, timeout_seconds))))


@get("/{task_id:str}/explain", opt=for_roles("producer", "viewer"))
async def explain(task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Why the task is where it is."""
    return json_answer(explanation_out(await service.engine.insight.explain(task_id)))


@delete("/{task_id:str}", status_code=200, opt=for_roles("producer"))
async def cancel(
    task_id: FromPath[str], service: InjectedService, purge: Annotated[bool, QueryParameter(name="purge")] = False
) -> Response[bytes]:
    """Cancel a live task, or with `purge=true` remove a finished one."""
    if purge:
        await service.engine.queue.purge(task_id)
        return json_answer({"task_id": task_id, "purged": True})
    was, worker = (await service.engine.queue.cancel(task_id)).details
    return json_answer(
        schemas.CancelOut(task_id=task_id, was_executing=was == TaskState.EXECUTING, worker_notified=bool(worker))
    )


@post("/{task_id:str}/retry", status_code=200, opt=for_roles("producer"))
async def retry(request: Http, task_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Run a failed, dead or cancelled task again."""
    options = decode(await request.body() or b"{}", schemas.RetryIn)
    version = await service.engine.queue.retry(
        task_id, keeps_budgets=not options.reset_retry_count, priority=options.new_priority
    )
    return json_answer(schemas.RetryOut(task_id=task_id, version=version))


def _new_task(request: Http, submission: schemas.SubmitIn, header_key: str | None, place: str = "") -> NewTask:
    field = f"{place}parameters"
    parameters = check_document(field, bytes(submission.parameters))
    if not parameters.startswith(b"{"):
        raise UnprocessableContent("parameters must be an object", pointer=f"/{field}")
    return submission.to_domain(parameters, request.user.name, header_key, _trace(request))


def _header_key(request: Http) -> str | None:
    """A structured-field string, so quoted; the bare form is common and taken too."""
    key = request.headers.get("idempotency-key")
    return key[1:-1] if key and len(key) >= 2 and key[0] == key[-1] == '"' else key


def _trace(request: Http) -> TraceContext:
    """Ignored unless it is what W3C Trace Context says it must be."""
    headers = request.headers
    traceparent = headers.get("traceparent", "")
    if not TRACEPARENT.fullmatch(traceparent):
        return TraceContext()
    return TraceContext(traceparent, headers.get("tracestate", "")[:512], headers.get("baggage", "")[:8192])


router = Router("/api/v1/tasks", route_handlers=[submit, submit_batch, read, wait, explain, cancel, retry])
