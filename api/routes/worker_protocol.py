"""Calls of workers: register → poll → (start) → (progress, extend) → result, and heartbeats.

`sync` does all of this in one round trip; simple clients need only the single calls.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from litestar import Request, Response, Router, delete, post
from litestar.params import FromPath

from tideq.api.edge.auth import Caller, check_worker
from tideq.api.edge.body import check_document, decode
from tideq.api.edge.claim_response import ClaimResponse
from tideq.api.edge.disconnect import cancel_on_disconnect
from tideq.api.edge.problems import UnprocessableContent, problem_of
from tideq.api.edge.responses import created, encode, json_response
from tideq.api.operations import operation
from tideq.api.routes.worker_links import (
    HOW_IT_ENDED,
    NOT_HELD,
    ONE_ROUND_TRIP,
    TO_THE_CLAIM,
    TO_THE_HELD,
    TO_THE_WORKER,
)
from tideq.api.schemas.attempts import (
    AcknowledgedOut,
    ExtendIn,
    HeldIn,
    OutcomeOut,
    ProgressIn,
    ResultIn,
    SyncIn,
    SyncOut,
)
from tideq.api.schemas.base import ResponseSchema
from tideq.api.schemas.blocked_types import blocked_types_if_any
from tideq.api.schemas.times import rfc3339
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
from tideq.api.worker_ids import make_worker_id
from tideq.queue_core.attempts import Extension, Failure, LeaseRef, ProgressReport, Success
from tideq.queue_core.errors import PayloadTooLarge, UnknownWorker, WorkerExists
from tideq.queue_core.scripts.replies import Outcome
from tideq.queue_core.task import Claim, Stop, WorkerDeclaration

Http = Request[Caller, Any, Any]
POLL_INTERVAL_MS = 1_000
MAX_HEALTH_BYTES = 4_096
FAILED = frozenset({"queued", "failed", "dead_letter"})
"""States after an attempt that failed."""


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
    claim = await _poll(request, service, worker_id, body, body.capabilities)
    return _hand_over(service, worker_id, body, claim, _poll_out(service, claim))


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
    held = _held(decode(await request.body(), HeldIn))
    (outcome,) = await service.engine.attempts.start(worker_id, [held])
    return json_response(_deadline(outcome.unwrap()))


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
    (outcome,) = await service.engine.attempts.extend(worker_id, [_extension(decode(await request.body(), ExtendIn))])
    return json_response(_deadline(outcome.unwrap()))


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
    (outcome,) = await service.engine.attempts.progress(worker_id, [_report(report)])
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
    settled = _settled(service, [decode(await request.body(), ResultIn)])
    (outcome,) = await _settle(service, worker_id, settled)
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
    report = _report_of(service, body)
    if body.available_capacity:
        outcomes_out = _outcomes_out(service, await _apply(service, worker_id, report))
        claim = await _poll(request, service, worker_id, body, None)
        out = _poll_out(service, claim)
        answer = SyncOut(
            outcomes=outcomes_out,
            tasks=out.tasks,
            cancel=out.cancel,
            should_drain=out.should_drain,
            blocked_types=out.blocked_types,
        )
        return _hand_over(service, worker_id, body, claim, answer)
    if report.is_starts_alone:
        # No heartbeat: handlers wait for this response, and the claim a moment ago counted as one and listed cancels.
        outcomes_out = _outcomes_out(service, await _apply(service, worker_id, report))
        return json_response(SyncOut(outcomes=outcomes_out, tasks=[], cancel=[], should_drain=False))
    beating = service.engine.fleet.heartbeat(worker_id)
    outcomes, beat = await asyncio.gather(_apply(service, worker_id, report), beating)
    outcomes_out, cancel = _outcomes_out(service, outcomes), _task_ids(beat.stops)
    blocked_types = blocked_types_if_any(beat.circuits)
    return json_response(
        SyncOut(
            outcomes=outcomes_out, tasks=[], cancel=cancel, should_drain=beat.should_drain, blocked_types=blocked_types
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


async def _poll(
    request: Http,
    service: Service,
    worker_id: str,
    body: PollIn | SyncIn,
    capabilities: list[str] | None,
) -> Claim:
    """Claims nothing for a client that disconnects while it waits."""
    polling = service.poll(
        worker_id,
        body.available_capacity,
        body.wait_seconds,
        body.poll_id or "",
        capabilities,
        starts=body.start_claimed,
    )
    return await cancel_on_disconnect(request, service.authenticator, polling) if body.wait_seconds else await polling


def _hand_over(
    service: Service,
    worker_id: str,
    body: PollIn | SyncIn,
    claim: Claim,
    answer: ResponseSchema,
) -> Response[bytes]:
    """A response that undoes the claim if the client has disconnected."""
    if not claim.tasks:
        return json_response(answer)
    return ClaimResponse(encode(answer), lambda: service.undo_claim(worker_id, body.poll_id or "", claim))


class _ErrorDetails(msgspec.Struct, frozen=True):
    """The part of an error's details that the service reads."""

    retry_requested: bool = False


class WorkerReport(NamedTuple):
    """The reports of a sync request, in the order of their outcomes."""

    starts: list[LeaseRef]
    reports: list[ProgressReport]
    extensions: list[Extension]
    settled: list[Success | Failure]
    releases: list[LeaseRef]

    @property
    def is_starts_alone(self) -> bool:
        return bool(self.starts) and not (self.reports or self.extensions or self.settled or self.releases)


def _report_of(service: Service, body: SyncIn) -> WorkerReport:
    """Everything is checked before the first report is applied: a refused request has applied none of them."""
    return WorkerReport(
        [_held(each) for each in body.starts],
        [_report(each) for each in body.progress],
        [_extension(each) for each in body.extends],
        _settled(service, body.results),
        [_held(each) for each in body.releases],
    )


async def _apply(service: Service, worker_id: str, report: WorkerReport) -> list[Outcome]:
    attempts, outcomes = service.engine.attempts, list[Outcome]()
    if report.starts:
        outcomes += await attempts.start(worker_id, report.starts)
    if report.reports:
        outcomes += await attempts.progress(worker_id, report.reports)
    if report.extensions:
        outcomes += await attempts.extend(worker_id, report.extensions)
    outcomes += await _settle(service, worker_id, report.settled)
    if report.releases:
        outcomes += await attempts.release(worker_id, report.releases)
    return outcomes


def _settled(service: Service, results: Sequence[ResultIn]) -> list[Success | Failure]:
    settled = [_success(each) if each.status == "completed" else _failure(each) for each in results]
    service.engine.attempts.check(settled)
    return settled


async def _settle(service: Service, worker_id: str, settled: Sequence[Success | Failure]) -> list[Outcome]:
    """Successes and failures are two scripts; outcomes come in the order the results were given."""
    successes = [each for each in settled if isinstance(each, Success)]
    failures = [each for each in settled if isinstance(each, Failure)]
    attempts = service.engine.attempts
    completed = iter(await attempts.complete(worker_id, successes) if successes else [])
    failed = iter(await attempts.fail(worker_id, failures) if failures else [])
    return [next(completed if isinstance(each, Success) else failed) for each in settled]


def _held(held: HeldIn) -> LeaseRef:
    return LeaseRef(held.task_id, held.lease)


def _success(result: ResultIn) -> Success:
    return Success(result.task_id, result.lease, check_document("result", bytes(result.result)))


def _failure(result: ResultIn) -> Failure:
    if result.error is None:
        raise UnprocessableContent(f"a {result.status} result needs an error", pointer="/error")
    check_document("error/details", bytes(result.error.details))
    body = msgspec.json.encode(result.error)
    verdict = "discard" if result.status == "discarded" else "retry" if result.error.retriable else "fail"
    is_deliberate = verdict == "retry" and _is_deliberate_retry(bytes(result.error.details))
    return Failure(result.task_id, result.lease, body, result.error.code, verdict, is_deliberate=is_deliberate)


def _is_deliberate_retry(details: bytes) -> bool:
    if b'"retry_requested"' not in details:
        return False
    try:
        return msgspec.json.decode(details, type=_ErrorDetails).retry_requested
    except msgspec.ValidationError:
        return False


def _report(report: ProgressIn) -> ProgressReport:
    sequence = round(report.progress_percent * 100) if report.sequence is None else report.sequence
    return ProgressReport(report.task_id, report.lease, sequence + 1, report.progress_percent, report.status_message)


def _extension(body: ExtendIn) -> Extension:
    return Extension(body.task_id, body.lease, max(round(body.seconds * 1000), 1))


def _deadline(outcome: Outcome) -> AcknowledgedOut:
    return AcknowledgedOut(visible_at=rfc3339(int(outcome.details[0])))


def _outcomes_out(service: Service, outcomes: Sequence[Outcome]) -> list[OutcomeOut]:
    return [_outcome_out(service, outcome) for outcome in outcomes]


def _outcome_out(service: Service, outcome: Outcome) -> OutcomeOut:
    if outcome.error is None:
        led_to = outcome.details[0] if outcome.details else ""
        return OutcomeOut(task_id=outcome.task_id, ok=True, status=led_to if led_to in FAILED else msgspec.UNSET)
    service.metrics.note_refusal(outcome.error)
    document, _ = problem_of(outcome.error)
    return OutcomeOut(task_id=outcome.task_id, ok=False, problem=document)


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
    guards=[check_worker],
)
