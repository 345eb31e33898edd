"""The calls of a lease holder about its attempt: start, extend, progress, complete, fail, release.

Every call presents the lease; a call with a lease that no longer holds the task is refused and changes nothing.
All calls take batches, because one script call for many tasks costs the store least; each row has its own outcome.
"""

import asyncio
import contextlib
import hashlib
import random
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tideq.queue_core.errors import InvalidRequest, PayloadTooLarge, TaskNotFound, Unavailable
from tideq.queue_core.partitioning.partition_sampler import MAX_PEEKS, home_of
from tideq.queue_core.partitioning.queue_partitions import QueuePartitions
from tideq.queue_core.scripts.replies import Outcome, accepted, outcomes
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.validation import check_batch

MAX_ERROR_BYTES = 65_536
MAX_MESSAGE_LENGTH = 1_000

Row = tuple[str | int | float | bytes, ...]
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
    def __init__(self, partitions: QueuePartitions, settings: QueueSettings) -> None:
        self._partitions = partitions
        self._max_payload_bytes = settings.admission.max_payload_bytes
        self._marks_suspects = partitions.count > MAX_PEEKS and settings.circuit.mode != "off"

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
        rows = [_failure_row(failure) for failure in failures]
        if not self._marks_suspects or not any(counts_against_worker(failure) for failure in failures):
            return await self.call("fail", worker_id, rows)
        failed, _ = await asyncio.gather(self.call("fail", worker_id, rows), self._mark_suspect(worker_id))
        return failed

    def check(self, results: Sequence[Success | Failure]) -> None:
        """Raises what `complete` and `fail` would raise for these results, before anything is sent to the store."""
        for each in results:
            if isinstance(each, Failure):
                _check_failure(each)
            elif len(each.result) > self._max_payload_bytes:
                raise PayloadTooLarge("result", len(each.result), self._max_payload_bytes)

    async def release(self, worker_id: str, held: Sequence[LeaseRef]) -> list[Outcome]:
        return await self.call("release", worker_id, held)

    async def call(self, verb: str, worker_id: str, rows: Sequence[Row]) -> list[Outcome]:
        """Sends each row to its task's partition.

        A partition that is away fails its own rows only. Raises Unavailable if all rows are its own.
        """
        check_batch(rows)
        partitions = self._partitions

        async def call_partition(partition: int, some: list[Row]) -> list[Outcome]:
            flat = [value for row in some for value in row]
            try:
                reply = await partitions.scripts[partition].call(verb, worker_id=worker_id, rows=flat)
                return outcomes(reply, [str(row[0]) for row in some])
            except Unavailable as error:
                partitions.health.record(partition, error)
                if len(some) == len(rows):
                    raise
                return [Outcome(str(row[0]), error=error) for row in some]

        return await partitions.by_task_id(rows, lambda row: str(row[0]), call_partition, is_missing)

    async def _mark_suspect(self, worker_id: str) -> None:
        """Record in the worker's home that a task of its failed: its next claim then peeks at all partitions.

        Limit: while the home is away the circuit opens later, once a claim peeks at the failures by chance.
        """
        home = home_of(worker_id, self._partitions.count)
        with contextlib.suppress(Unavailable):
            accepted(await self._partitions.scripts[home].call("mark_suspect", worker_id=worker_id))


def is_missing(outcome: Outcome) -> bool:
    return isinstance(outcome.error, TaskNotFound)


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
