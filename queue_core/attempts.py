"""What a lease holder may say about its attempt: start, extend, progress, complete, fail, release.

Every call presents the lease and is refused, changing nothing, when it no longer holds the task. All come in
batches, since a worker that speaks for many tasks at once costs the store least; each row has its own outcome.
"""

import hashlib
import random
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tideq.queue_core.errors import InvalidRequest, PayloadTooLarge
from tideq.queue_core.scripts.replies import Outcome, outcomes
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.validation import check_batch

MAX_ERROR_BYTES = 65_536
MAX_MESSAGE_LENGTH = 1_000

AttemptVerb = Literal["retry", "fail", "discard"]
ASKED_FOR = frozenset(("RATE_LIMIT", "TEMPORARY_UNAVAILABLE", "Retry"))
"""Codes of failures that the handler reports on purpose: they say nothing against its worker."""


class LeaseRef(NamedTuple):
    task_id: str
    lease: str


class Extension(NamedTuple):
    task_id: str
    lease: str
    extension_ms: int


class ProgressReport(NamedTuple):
    task_id: str
    lease: str
    sequence: int
    percent: float
    message: str = ""


class Success(NamedTuple):
    task_id: str
    lease: str
    result: bytes = b"null"


class Failure(NamedTuple):
    task_id: str
    lease: str
    error: bytes
    """A JSON document, kept as it is."""
    code: str = ""
    verdict: AttemptVerb = "retry"
    jitter: float | None = None
    """-1 … 1 for the spread of the delay; random where not given."""
    is_asked_for: bool = False
    """Whether the handler asked to be run again: also so with a code in `ASKED_FOR`."""


class Attempts:
    def __init__(self, scripts: Scripts, settings: QueueSettings) -> None:
        self._scripts = scripts
        self._max_payload_bytes = settings.admission.max_payload_bytes

    async def start(self, worker_id: str, held: Sequence[LeaseRef]) -> list[Outcome]:
        """Details of an accepted start: the execution deadline."""
        return await self.call("start", worker_id, held)

    async def extend(self, worker_id: str, extensions: Sequence[Extension]) -> list[Outcome]:
        """Details of an accepted extension: the new deadline."""
        for extension in extensions:
            if not 0 < extension.extension_ms < 2**42:
                raise InvalidRequest("seconds", "an extension is a positive time")
        return await self.call("extend", worker_id, extensions)

    async def progress(self, worker_id: str, reports: Sequence[ProgressReport]) -> list[Outcome]:
        for report in reports:
            if not 0 <= report.percent <= 100:
                raise InvalidRequest("progress_percent", f"{report.percent} lies outside 0 … 100")
            if not 0 <= report.sequence < 2**53:
                raise InvalidRequest("sequence", f"{report.sequence} lies outside 0 … 2^53")
            if len(report.message) > MAX_MESSAGE_LENGTH:
                raise InvalidRequest("status_message", f"longer than {MAX_MESSAGE_LENGTH} characters")
        return await self.call("progress", worker_id, reports)

    async def complete(self, worker_id: str, successes: Sequence[Success]) -> list[Outcome]:
        """Details of an accepted result: the state it led to."""
        self.check(successes)
        rows = [(task_id, lease, _digest(result), result) for task_id, lease, result in successes]
        return await self.call("complete", worker_id, rows)

    async def fail(self, worker_id: str, failures: Sequence[Failure]) -> list[Outcome]:
        """Details of an accepted failure: the state it led to."""
        self.check(failures)
        return await self.call("fail", worker_id, [_failure_row(failure) for failure in failures])

    def check(self, settled: Sequence[Success | Failure]) -> None:
        """Refuse results no store should see. `complete` and `fail` do so too; here it can be known beforehand."""
        for each in settled:
            if isinstance(each, Failure):
                _check_failure(each)
            elif len(each.result) > self._max_payload_bytes:
                raise PayloadTooLarge("result", len(each.result), self._max_payload_bytes)

    async def release(self, worker_id: str, held: Sequence[LeaseRef]) -> list[Outcome]:
        return await self.call("release", worker_id, held)

    async def call(
        self, verb: str, worker_id: str, rows: Sequence[tuple[str | int | float | bytes, ...]]
    ) -> list[Outcome]:
        """One batch, each row with its own outcome."""
        check_batch(rows)
        flat = [value for row in rows for value in row]
        reply = await self._scripts.call(verb, worker_id=worker_id, rows=flat)
        return outcomes(reply, [str(row[0]) for row in rows])


def _check_failure(failure: Failure) -> None:
    if len(failure.error) > MAX_ERROR_BYTES:
        raise PayloadTooLarge("error", len(failure.error), MAX_ERROR_BYTES)
    if failure.verdict not in ("retry", "fail", "discard"):
        raise InvalidRequest("verdict", f"{failure.verdict!r} is not one of retry, fail, discard")
    if failure.jitter is not None and not -1 <= failure.jitter <= 1:
        raise InvalidRequest("jitter", f"{failure.jitter} lies outside -1 … 1")


def _digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).hexdigest()


def _failure_row(failure: Failure) -> tuple[str | float | bytes, ...]:
    digest = _digest(failure.verdict.encode(), failure.code.encode(), failure.error)
    jitter = random.uniform(-1, 1) if failure.jitter is None else failure.jitter
    blames = int(counts_against_worker(failure))
    return (failure.task_id, failure.lease, digest, failure.verdict, failure.code, jitter, blames, failure.error)


def counts_against_worker(failure: Failure) -> bool:
    return failure.verdict == "retry" and not (failure.is_asked_for or failure.code in ASKED_FOR)
