"""Workers' calls: register → poll → (start) → (progress, extend) → result, with heartbeat beside it.

`sync` does all of it in one round trip; simple clients need only the single calls.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from litestar import Request, Response, Router, delete, post
from litestar.params import FromPath

from tideq.api import schemas
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
"""Where an attempt that did not succeed leads to."""


@post(
    "/register",
    opt=operation(
        "worker",
        body=schemas.RegisterIn,
        answer=schemas.RegisterOut,
        refuses=(WorkerExists,),
        links=TO_THE_WORKER,
    ),
)
async def register(request: Http, service: InjectedService) -> Response[bytes]:
    """Join the fleet. The id is new with every registration, so two processes never share one."""
    asked = decode(await request.body(), schemas.RegisterIn)
    worker = WorkerDeclaration(
        worker_id=make_worker_id(asked.name, request.user.key_digest),
        task_types=None if asked.task_types is None else tuple(asked.task_types),
        capabilities=tuple(asked.capabilities),
        capacity=asked.capacity,
        version=asked.version,
        host=asked.host,
        health_port=asked.health_port,
        name=asked.name,
    )
    await service.engine.fleet.register(worker)
    timeout_ms = service.settings.queue.leases.heartbeat_timeout_ms
    return created(
        schemas.RegisterOut(
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
        body=schemas.PollIn,
        answer=schemas.PollOut,
        refuses=(UnknownWorker,),
        links=TO_THE_CLAIM,
        is_frequent=True,
    ),
)
async def poll(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Ask for work, and wait for it if told to."""
    asked = decode(await request.body(), schemas.PollIn)
    _check_starting(asked)
    claim = await _poll(request, service, worker_id, asked, asked.capabilities)
    return _hand_over(service, worker_id, asked, claim, _poll_out(service, claim))


@post(
    "/{worker_id:str}/start",
    status_code=200,
    opt=operation(
        "worker",
        body=schemas.HeldIn,
        answer=schemas.AcknowledgedOut,
        refuses=NOT_HELD,
        links=TO_THE_HELD,
        is_frequent=True,
    ),
)
async def start(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Say that a task has begun."""
    held = _held(decode(await request.body(), schemas.HeldIn))
    (outcome,) = await service.engine.attempts.start(worker_id, [held])
    return json_response(_deadline(outcome.unwrap()))


@post(
    "/{worker_id:str}/extend",
    status_code=200,
    opt=operation(
        "worker",
        body=schemas.ExtendIn,
        answer=schemas.AcknowledgedOut,
        refuses=NOT_HELD,
        links=TO_THE_HELD,
        is_frequent=True,
    ),
)
async def extend(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Ask for more time."""
    (outcome,) = await service.engine.attempts.extend(
        worker_id, [_extension(decode(await request.body(), schemas.ExtendIn))]
    )
    return json_response(_deadline(outcome.unwrap()))


@post(
    "/{worker_id:str}/progress",
    status_code=200,
    opt=operation(
        "worker",
        body=schemas.ProgressIn,
        answer=schemas.AcknowledgedOut,
        refuses=NOT_HELD,
        links=TO_THE_HELD,
        is_frequent=True,
    ),
)
async def progress(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Tell how far it has come."""
    report = decode(await request.body(), schemas.ProgressIn)
    (outcome,) = await service.engine.attempts.progress(worker_id, [_report(report)])
    outcome.unwrap()
    return json_response(schemas.AcknowledgedOut())


@post(
    "/{worker_id:str}/result",
    status_code=200,
    opt=operation(
        "worker",
        body=schemas.ResultIn,
        answer=schemas.AcknowledgedOut,
        refuses=(PayloadTooLarge, *NOT_HELD),
        examples=HOW_IT_ENDED,
        is_frequent=True,
    ),
)
async def result(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Deliver a result or an error."""
    settled = _settled(service, [decode(await request.body(), schemas.ResultIn)])
    (outcome,) = await _settle(service, worker_id, settled)
    return json_response(schemas.AcknowledgedOut(status=outcome.unwrap().details[0]))


@post(
    "/{worker_id:str}/heartbeat",
    status_code=200,
    opt=operation(
        "worker",
        body=schemas.HeartbeatIn,
        answer=schemas.HeartbeatOut,
        needs_body=False,
        refuses=(UnknownWorker,),
        is_frequent=True,
    ),
)
async def heartbeat(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Say that the worker is alive; the answer says what to stop."""
    asked = decode(await request.body() or b"{}", schemas.HeartbeatIn)
    health = msgspec.json.encode(asked.health) if asked.health else b""
    if len(health) > MAX_HEALTH_BYTES:
        raise UnprocessableContent(f"more than {MAX_HEALTH_BYTES} bytes of it", pointer="/health")
    beat = await service.engine.fleet.heartbeat(worker_id, health, word=asked.status, load=asked.current_load)
    return json_response(
        schemas.HeartbeatOut(
            should_drain=beat.should_drain,
            cancel=_task_ids(beat.stops),
            held_back=schemas.held_back_if_any(beat.held_back),
        )
    )


@post(
    "/{worker_id:str}/sync",
    status_code=200,
    request_max_body_size=MAX_BULK_BODY_BYTES,
    opt=operation(
        "worker",
        body=schemas.SyncIn,
        answer=schemas.SyncOut,
        refuses=(PayloadTooLarge, UnknownWorker),
        links=TO_THE_CLAIM,
        examples=ONE_ROUND_TRIP,
        is_frequent=True,
    ),
)
async def sync(request: Http, worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Everything in one round trip: what was started, done and handed back goes in, new tasks come out."""
    asked = decode(await request.body(), schemas.SyncIn)
    _check_starting(asked)
    said = _said(service, asked)
    if asked.available_capacity:
        told = _told(service, await _apply(service, worker_id, said))
        claim = await _poll(request, service, worker_id, asked, None)
        out = _poll_out(service, claim)
        answer = schemas.SyncOut(
            outcomes=told,
            tasks=out.tasks,
            cancel=out.cancel,
            should_drain=out.should_drain,
            held_back=out.held_back,
        )
        return _hand_over(service, worker_id, asked, claim, answer)
    if said.is_starts_alone:
        # Handlers wait for this. Whoever was given the tasks a moment ago was heard of then, and told what to stop.
        told = _told(service, await _apply(service, worker_id, said))
        return json_response(schemas.SyncOut(outcomes=told, tasks=[], cancel=[], should_drain=False))
    beating = service.engine.fleet.heartbeat(worker_id)
    outcomes, beat = await asyncio.gather(_apply(service, worker_id, said), beating)
    told, cancel = _told(service, outcomes), _task_ids(beat.stops)
    held_back = schemas.held_back_if_any(beat.held_back)
    return json_response(
        schemas.SyncOut(outcomes=told, tasks=[], cancel=cancel, should_drain=beat.should_drain, held_back=held_back)
    )


@delete(
    "/{worker_id:str}",
    status_code=200,
    opt=operation("worker", answer=schemas.DeregisteredOut, refuses=(UnknownWorker,)),
)
async def leave(worker_id: FromPath[str], service: InjectedService) -> Response[bytes]:
    """Leave the fleet; what the worker holds goes back free of charge."""
    return json_response(schemas.DeregisteredOut(released=await service.engine.fleet.remove(worker_id)))


def _check_starting(asked: schemas.PollIn | schemas.SyncIn) -> None:
    """Whoever loses the answer must be able to ask for it again: nothing else brings it back soon."""
    if asked.start_claimed and not asked.poll_id:
        raise UnprocessableContent("start_claimed needs a poll_id, to ask again for a lost answer", pointer="/poll_id")


async def _poll(
    request: Http,
    service: Service,
    worker_id: str,
    asked: schemas.PollIn | schemas.SyncIn,
    capabilities: list[str] | None,
) -> Claim:
    """A caller that goes away while waiting gets nothing claimed for it."""
    polling = service.poll(
        worker_id,
        asked.available_capacity,
        asked.wait_seconds,
        asked.poll_id or "",
        capabilities,
        starts=asked.start_claimed,
    )
    return await cancel_on_disconnect(request, service.authenticator, polling) if asked.wait_seconds else await polling


def _hand_over(
    service: Service,
    worker_id: str,
    asked: schemas.PollIn | schemas.SyncIn,
    claim: Claim,
    answer: schemas.ResponseSchema,
) -> Response[bytes]:
    """A caller that is gone by the time of the answer leaves nothing behind either."""
    if not claim.tasks:
        return json_response(answer)
    return ClaimResponse(encode(answer), lambda: service.undo_claim(worker_id, asked.poll_id or "", claim))


class _PollRequest(msgspec.Struct, frozen=True):
    """Of an error's details, what the service reads."""

    asked_for: bool = False


class WorkerReport(NamedTuple):
    """What a request has to tell, in the order its outcomes come."""

    starts: list[LeaseRef]
    reports: list[ProgressReport]
    extensions: list[Extension]
    settled: list[Success | Failure]
    releases: list[LeaseRef]

    @property
    def is_starts_alone(self) -> bool:
        return bool(self.starts) and not (self.reports or self.extensions or self.settled or self.releases)


def _said(service: Service, asked: schemas.SyncIn) -> WorkerReport:
    """Everything is read and checked before the first part is done: a refused request has done none of them."""
    return WorkerReport(
        [_held(each) for each in asked.starts],
        [_report(each) for each in asked.progress],
        [_extension(each) for each in asked.extends],
        _settled(service, asked.results),
        [_held(each) for each in asked.releases],
    )


async def _apply(service: Service, worker_id: str, said: WorkerReport) -> list[Outcome]:
    attempts, outcomes = service.engine.attempts, list[Outcome]()
    if said.starts:
        outcomes += await attempts.start(worker_id, said.starts)
    if said.reports:
        outcomes += await attempts.progress(worker_id, said.reports)
    if said.extensions:
        outcomes += await attempts.extend(worker_id, said.extensions)
    outcomes += await _settle(service, worker_id, said.settled)
    if said.releases:
        outcomes += await attempts.release(worker_id, said.releases)
    return outcomes


def _settled(service: Service, results: Sequence[schemas.ResultIn]) -> list[Success | Failure]:
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


def _held(held: schemas.HeldIn) -> LeaseRef:
    return LeaseRef(held.task_id, held.lease)


def _success(result: schemas.ResultIn) -> Success:
    return Success(result.task_id, result.lease, check_document("result", bytes(result.result)))


def _failure(result: schemas.ResultIn) -> Failure:
    if result.error is None:
        raise UnprocessableContent(f"a {result.status} result says what went wrong", pointer="/error")
    check_document("error/details", bytes(result.error.details))
    body = msgspec.json.encode(result.error)
    verdict = "discard" if result.status == "discarded" else "retry" if result.error.retriable else "fail"
    asks = verdict == "retry" and _asks_again(bytes(result.error.details))
    return Failure(result.task_id, result.lease, body, result.error.code, verdict, is_asked_for=asks)


def _asks_again(details: bytes) -> bool:
    if b'"asked_for"' not in details:
        return False
    try:
        return msgspec.json.decode(details, type=_PollRequest).asked_for
    except msgspec.ValidationError:
        return False


def _report(report: schemas.ProgressIn) -> ProgressReport:
    sequence = round(report.progress_percent * 100) if report.sequence is None else report.sequence
    return ProgressReport(report.task_id, report.lease, sequence + 1, report.progress_percent, report.status_message)


def _extension(asked: schemas.ExtendIn) -> Extension:
    return Extension(asked.task_id, asked.lease, max(round(asked.seconds * 1000), 1))


def _deadline(outcome: Outcome) -> schemas.AcknowledgedOut:
    return schemas.AcknowledgedOut(visible_at=schemas.rfc3339(int(outcome.details[0])))


def _told(service: Service, outcomes: Sequence[Outcome]) -> list[schemas.OutcomeOut]:
    return [_outcome_out(service, outcome) for outcome in outcomes]


def _outcome_out(service: Service, outcome: Outcome) -> schemas.OutcomeOut:
    if outcome.error is None:
        led_to = outcome.details[0] if outcome.details else ""
        return schemas.OutcomeOut(
            task_id=outcome.task_id, ok=True, status=led_to if led_to in FAILED else msgspec.UNSET
        )
    service.meters.note_refusal(outcome.error)
    document, _ = problem_of(outcome.error)
    return schemas.OutcomeOut(task_id=outcome.task_id, ok=False, problem=document)


def _poll_out(service: Service, claim: Claim) -> schemas.PollOut:
    is_traced = service.tracing is not None
    tasks = [schemas.claimed_out(task, is_traced=is_traced) for task in claim.tasks]
    return schemas.PollOut(
        tasks=tasks,
        cancel=_task_ids(claim.stops),
        should_drain=claim.should_drain,
        held_back=schemas.held_back_if_any(claim.held_back),
    )


def _task_ids(stops: Sequence[Stop]) -> list[str]:
    return [stop.task_id for stop in stops]


router = Router(
    "/internal/workers",
    route_handlers=[register, poll, start, extend, progress, result, heartbeat, sync, leave],
    guards=[check_worker],
)
