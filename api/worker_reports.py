"""What workers report about their tasks: from a request's documents to the engine's calls, and back."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tideq.api.edge.body import check_document
from tideq.api.edge.problems import UnprocessableContent, problem_of
from tideq.api.schemas.attempts import AcknowledgedOut, ExtendIn, HeldIn, OutcomeOut, ProgressIn, ResultIn, SyncIn
from tideq.api.schemas.times import rfc3339
from tideq.api.service import Service
from tideq.queue_core.attempts import Extension, Failure, LeaseRef, ProgressReport, Success
from tideq.queue_core.scripts.replies import Outcome

FAILED = frozenset({"queued", "failed", "dead_letter"})
"""States after an attempt that failed."""


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


def worker_report(service: Service, body: SyncIn) -> WorkerReport:
    """Everything is checked before the first report is applied: a refused request has applied none of them."""
    return WorkerReport(
        [lease_ref(each) for each in body.starts],
        [progress_report(each) for each in body.progress],
        [extension(each) for each in body.extends],
        check_results(service, body.results),
        [lease_ref(each) for each in body.releases],
    )


async def apply_report(service: Service, worker_id: str, report: WorkerReport) -> list[Outcome]:
    attempts, outcomes = service.engine.attempts, list[Outcome]()
    if report.starts:
        outcomes += await attempts.start(worker_id, report.starts)
    if report.reports:
        outcomes += await attempts.progress(worker_id, report.reports)
    if report.extensions:
        outcomes += await attempts.extend(worker_id, report.extensions)
    outcomes += await settle(service, worker_id, report.settled)
    if report.releases:
        outcomes += await attempts.release(worker_id, report.releases)
    return outcomes


def check_results(service: Service, results: Sequence[ResultIn]) -> list[Success | Failure]:
    settled = [_success(each) if each.status == "completed" else _failure(each) for each in results]
    service.engine.attempts.check(settled)
    return settled


async def settle(service: Service, worker_id: str, settled: Sequence[Success | Failure]) -> list[Outcome]:
    """Successes and failures are two scripts; outcomes come in the order the results were given."""
    successes = [each for each in settled if isinstance(each, Success)]
    failures = [each for each in settled if isinstance(each, Failure)]
    attempts = service.engine.attempts
    completed = iter(await attempts.complete(worker_id, successes) if successes else [])
    failed = iter(await attempts.fail(worker_id, failures) if failures else [])
    return [next(completed if isinstance(each, Success) else failed) for each in settled]


def lease_ref(held: HeldIn) -> LeaseRef:
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


def progress_report(report: ProgressIn) -> ProgressReport:
    sequence = round(report.progress_percent * 100) if report.sequence is None else report.sequence
    return ProgressReport(report.task_id, report.lease, sequence + 1, report.progress_percent, report.status_message)


def extension(body: ExtendIn) -> Extension:
    return Extension(body.task_id, body.lease, max(round(body.seconds * 1000), 1))


def deadline_out(outcome: Outcome) -> AcknowledgedOut:
    return AcknowledgedOut(visible_at=rfc3339(int(outcome.details[0])))


def outcomes_out(service: Service, outcomes: Sequence[Outcome]) -> list[OutcomeOut]:
    return [_outcome_out(service, outcome) for outcome in outcomes]


def _outcome_out(service: Service, outcome: Outcome) -> OutcomeOut:
    if outcome.error is None:
        led_to = outcome.details[0] if outcome.details else ""
        return OutcomeOut(task_id=outcome.task_id, ok=True, status=led_to if led_to in FAILED else msgspec.UNSET)
    service.metrics.note_refusal(outcome.error)
    document, _ = problem_of(outcome.error)
    return OutcomeOut(task_id=outcome.task_id, ok=False, problem=document)
