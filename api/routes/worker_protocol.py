"""Calls of workers: register → poll → (start) → (progress, extend) → result, and heartbeats.

`sync` does all of this in one round trip; simple clients need only the single calls.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Request, Response, Router, delete, post
from litestar.params import FromPath

from tideq.api.edge.auth import Caller, make_worker_id
from tideq.api.edge.body import decode
from tideq.api.edge.problems import UnprocessableContent
from tideq.api.edge.responses import created, json_response
from tideq.api.long_poll import LongPoll
from tideq.api.operations import link_to, operation
from tideq.api.schemas.attempts import AcknowledgedOut, ExtendIn, HeldIn, ProgressIn, ResultIn, SyncIn, SyncOut
from tideq.api.schemas.blocked_types import blocked_types_if_any
from tideq.api.schemas.workers import (
    DeregisteredOut,
    HeartbeatIn,
    HeartbeatOut,
    PollIn,
    PollOut,
    RegisterIn,
    RegisterOut,
    claimed_out,
)
from tideq.api.service import InjectedService, Service
from tideq.api.settings import MAX_BULK_BODY_BYTES
from tideq.api.worker_reports import (
    apply_report,
    check_results,
    deadline_out,
    extension,
    lease_ref,
    outcomes_out,
    progress_report,
    settle,
    worker_report,
)
from tideq.queue_core.errors import (
    PayloadTooLarge,
    StaleLease,
    TaskNotFound,
    UnknownWorker,
    WorkerExists,
    WrongState,
)
from tideq.queue_core.task import Claim, Stop, WorkerDeclaration

Http = Request[Caller, Any, Any]
POLL_INTERVAL_MS = 1_000
MAX_HEALTH_BYTES = 4_096

NOT_HELD = (TaskNotFound, WrongState, StaleLease)
AS_WORKER = "$request.path.worker_id"
TO_THE_WORKER = link_to(
    *(f"worker_protocol_{verb}" for verb in ("poll", "heartbeat", "sync", "leave")), worker_id="/worker_id"
)
TO_THE_CLAIM = link_to(
    *(f"worker_protocol_{verb}" for verb in ("start", "extend", "progress", "result")),
    worker_id=AS_WORKER,
    body={"task_id": "/tasks/0/task_id", "lease": "/tasks/0/lease"},
)
TO_THE_HELD = link_to(
    *(f"worker_protocol_{verb}" for verb in ("extend", "progress", "result")),
    worker_id=AS_WORKER,
    body={"task_id": "$request.body#/task_id", "lease": "$request.body#/lease"},
)
HELD: dict[str, Any] = {
    "task_id": "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5",
    "lease": "1-5d1f0c9a7be24d30a1c8e6f2b7d94a13",
}
HOW_IT_ENDED: dict[str, dict[str, Any]] = {
    "completed": {**HELD, "status": "completed", "result": {"pages": 27}, "execution_duration_seconds": 3.2},
    "discarded": {**HELD, "status": "discarded", "error": {"message": "the customer is gone"}},
    "failed": {**HELD, "status": "failed", "error": {"message": "upstream timed out", "code": "RATE_LIMIT"}},
}
ONE_ROUND_TRIP: dict[str, dict[str, Any]] = {
    "result, start and poll": {
        "results": [HOW_IT_ENDED["completed"]],
        "starts": [{**HELD, "task_id": "0195546e-3c7b-7a02-8c11-00f0e1d2c3b4"}],
        "available_capacity": 3,
        "wait_seconds": 20,
        "poll_id": "p-17",
    },
    "poll only": {"available_capacity": 1},
}


@post(
    "/register",
    opt=operation(
        "worker",
        body=RegisterIn,
        answer=RegisterOut,
        refuses=(WorkerExists,),
        links=TO_THE_WORKER,
    ),
)
async def register(request: Http, service: InjectedService) -> Response[bytes]:
    """Register a worker. Every registration gets a new id, so two processes never share one."""
    body = decode(await request.body(), RegisterIn)
    worker = WorkerDeclaration(
        worker_id=make_worker_id(body.name, request.user.key_digest),
        task_types=None if body.task_types is None else tuple(body.task_types),
        capabilities=tuple(body.capabilities),
        capacity=body.capacity,
        version=body.version,
        host=body.host,
        health_port=body.health_port,
        name=body.name,
    )
    await service.engine.fleet.register(worker)
    timeout_ms = service.settings.queue.leases.heartbeat_timeout_ms
    return created(
        RegisterOut(
            worker_id=worker.worker_id,
            poll_interval_ms=POLL_INTERVAL_MS,
            heartbeat_interval_ms=timeout_ms // 3,
            queue=service.settings.queue.queue_name,
            can_start_claimed=len(service.engine.parts) == 1,
        )
    )


@post(
    "/{worker_id:str}/poll",
    status_code=200,
    opt=operation(
        "worker",
        body=PollIn,
        answer=PollOut,
        refuses=(UnknownWorker,),
        links=TO_THE_CLAIM,
        is_hot=True,
    ),
)
async def poll(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Claim tasks, waiting for them up to `wait_seconds`."""
    body = decode(await request.body(), PollIn)
    _check_starting(body)
    long_poll = LongPoll(request, service, worker_id, body, body.capabilities)
    return long_poll.response(_poll_out(service, await long_poll.claim()))


@post(
    "/{worker_id:str}/start",
    status_code=200,
    opt=operation(
        "worker",
        body=HeldIn,
        answer=AcknowledgedOut,
        refuses=NOT_HELD,
        links=TO_THE_HELD,
        is_hot=True,
    ),
)
async def start(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Report the start of a task."""
    held = lease_ref(decode(await request.body(), HeldIn))
    (outcome,) = await service.engine.attempts.start(worker_id, [held])
    return json_response(deadline_out(outcome.unwrap()))


@post(
    "/{worker_id:str}/extend",
    status_code=200,
    opt=operation(
        "worker",
        body=ExtendIn,
        answer=AcknowledgedOut,
        refuses=NOT_HELD,
        links=TO_THE_HELD,
        is_hot=True,
    ),
)
async def extend(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Extend the deadline of a task."""
    (outcome,) = await service.engine.attempts.extend(worker_id, [extension(decode(await request.body(), ExtendIn))])
    return json_response(deadline_out(outcome.unwrap()))


@post(
    "/{worker_id:str}/progress",
    status_code=200,
    opt=operation(
        "worker",
        body=ProgressIn,
        answer=AcknowledgedOut,
        refuses=NOT_HELD,
        links=TO_THE_HELD,
        is_hot=True,
    ),
)
async def progress(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Report the progress of a task."""
    report = decode(await request.body(), ProgressIn)
    (outcome,) = await service.engine.attempts.progress(worker_id, [progress_report(report)])
    outcome.unwrap()
    return json_response(AcknowledgedOut())


@post(
    "/{worker_id:str}/result",
    status_code=200,
    opt=operation(
        "worker",
        body=ResultIn,
        answer=AcknowledgedOut,
        refuses=(PayloadTooLarge, *NOT_HELD),
        examples=HOW_IT_ENDED,
        is_hot=True,
    ),
)
async def result(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Report the result or the error of a task."""
    settled = check_results(service, [decode(await request.body(), ResultIn)])
    (outcome,) = await settle(service, worker_id, settled)
    return json_response(AcknowledgedOut(status=outcome.unwrap().details[0]))


@post(
    "/{worker_id:str}/heartbeat",
    status_code=200,
    opt=operation(
        "worker",
        body=HeartbeatIn,
        answer=HeartbeatOut,
        needs_body=False,
        refuses=(UnknownWorker,),
        is_hot=True,
    ),
)
async def heartbeat(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Report that the worker is alive. The response lists cancelled tasks to stop."""
    body = decode(await request.body() or b"{}", HeartbeatIn)
    health = msgspec.json.encode(body.health) if body.health else b""
    if len(health) > MAX_HEALTH_BYTES:
        raise UnprocessableContent(
            f"health has {len(health)} bytes; at most {MAX_HEALTH_BYTES} are allowed", pointer="/health"
        )
    beat = await service.engine.fleet.heartbeat(worker_id, health, reported_state=body.status, load=body.current_load)
    return json_response(
        HeartbeatOut(
            should_drain=beat.should_drain,
            cancel=_task_ids(beat.stops),
            blocked_types=blocked_types_if_any(beat.circuits),
        )
    )


@post(
    "/{worker_id:str}/sync",
    status_code=200,
    request_max_body_size=MAX_BULK_BODY_BYTES,
    opt=operation(
        "worker",
        body=SyncIn,
        answer=SyncOut,
        refuses=(PayloadTooLarge, UnknownWorker),
        links=TO_THE_CLAIM,
        examples=ONE_ROUND_TRIP,
        is_hot=True,
    ),
)
async def sync(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Report on tasks and claim new ones in one round trip."""
    body = decode(await request.body(), SyncIn)
    _check_starting(body)
    report = worker_report(service, body)
    if body.available_capacity:
        outcomes = outcomes_out(service, await apply_report(service, worker_id, report))
        long_poll = LongPoll(request, service, worker_id, body)
        out = _poll_out(service, await long_poll.claim())
        answer = SyncOut(
            outcomes=outcomes,
            tasks=out.tasks,
            cancel=out.cancel,
            should_drain=out.should_drain,
            blocked_types=out.blocked_types,
        )
        return long_poll.response(answer)
    if report.is_starts_alone:
        # No heartbeat: handlers wait for this response, and the claim a moment ago counted as one and listed cancels.
        outcomes = outcomes_out(service, await apply_report(service, worker_id, report))
        return json_response(SyncOut(outcomes=outcomes, tasks=[], cancel=[], should_drain=False))
    beating = service.engine.fleet.heartbeat(worker_id)
    applied, beat = await asyncio.gather(apply_report(service, worker_id, report), beating)
    return json_response(
        SyncOut(
            outcomes=outcomes_out(service, applied),
            tasks=[],
            cancel=_task_ids(beat.stops),
            should_drain=beat.should_drain,
            blocked_types=blocked_types_if_any(beat.circuits),
        )
    )


@delete(
    "/{worker_id:str}",
    status_code=200,
    opt=operation("worker", answer=DeregisteredOut, refuses=(UnknownWorker,)),
)
async def leave(worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Deregister the worker. Tasks it holds are handed back without counting against a limit."""
    return json_response(DeregisteredOut(released=await service.engine.fleet.remove(worker_id)))


def _check_starting(body: PollIn | SyncIn) -> None:
    """Tasks started by a lost response return only at their deadline, unless the poll can be repeated."""
    if body.start_claimed and not body.poll_id:
        raise UnprocessableContent(
            "start_claimed needs a poll_id, so that the poll can be repeated if its response is lost",
            pointer="/poll_id",
        )


def _poll_out(service: Service, claim: Claim) -> PollOut:
    is_traced = service.tracing is not None
    tasks = [claimed_out(task, is_traced=is_traced) for task in claim.tasks]
    return PollOut(
        tasks=tasks,
        cancel=_task_ids(claim.stops),
        should_drain=claim.should_drain,
        blocked_types=blocked_types_if_any(claim.circuits),
    )


def _task_ids(stops: Sequence[Stop]) -> list[str]:
    return [stop.task_id for stop in stops]


router = Router(
    "/internal/workers",
    route_handlers=[register, poll, start, extend, progress, result, heartbeat, sync, leave],
)
