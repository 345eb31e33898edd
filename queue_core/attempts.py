"""The calls of a lease holder about its attempt: start, extend, progress, complete, fail, release.

Every call presents the lease; a call with a lease that no longer holds the task is refused and changes nothing.
All calls take batches, because one script call for many tasks costs the store least; each row has its own outcome.
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
DELIBERATE_CODES = frozenset(("RATE_LIMIT", "TEMPORARY_UNAVAILABLE", "Retry"))
"""Error codes that a handler reports on purpose: such a failure does not count against its worker."""


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
    """A JSON document, stored unchanged."""
    code: str = ""
    verdict: AttemptVerb = "retry"
    jitter: float | None = None
    """Position in the spread of the backoff, -1 … 1; random if None."""
    is_deliberate: bool = False
    """Whether the handler requested the retry; a code in `DELIBERATE_CODES` implies it."""


class Attempts:
    def __init__(self, scripts: Scripts, settings: QueueSettings) -> None:
        self._scripts = scripts
        self._max_payload_bytes = settings.admission.max_payload_bytes

    async def start(self, worker_id: str, held: Sequence[LeaseRef]) -> list[Outcome]:
        """Returns outcomes whose details hold the execution deadline."""
        return await self.call("start", worker_id, held)

    async def extend(self, worker_id: str, extensions: Sequence[Extension]) -> list[Outcome]:
        """Returns outcomes whose details hold the new deadline."""
        for extension in extensions:
            if not 0 < extension.extension_ms < 2**42:
                raise InvalidRequest("seconds", "an extension must be a positive time")
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
        """Returns outcomes whose details hold the task's new state."""
        self.check(successes)
        rows = [(task_id, lease, _digest(result), result) for task_id, lease, result in successes]
        return await self.call("complete", worker_id, rows)

    async def fail(self, worker_id: str, failures: Sequence[Failure]) -> list[Outcome]:
        """Returns outcomes whose details hold the task's new state."""
        self.check(failures)
        return await self.call("fail", worker_id, [_failure_row(failure) for failure in failures])

    def check(self, results: Sequence[Success | Failure]) -> None:
        """Raises what `complete` and `fail` would raise for these results, before anything is sent to the store."""
        for each in results:
            if isinstance(each, Failure):
                _check_failure(each)
            elif len(each.result) > self._max_payload_bytes:
                raise PayloadTooLarge("result", len(each.result), self._max_payload_bytes)

    async def release(self, worker_id: str, held: Sequence[LeaseRef]) -> list[Outcome]:
        return await self.call("release", worker_id, held)

    async def call(
        self, verb: str, worker_id: str, rows: Sequence[tuple[str | int | float | bytes, ...]]
    ) -> list[Outcome]:
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
    return failure.verdict == "retry" and not (failure.is_deliberate or failure.code in DELIBERATE_CODES)
