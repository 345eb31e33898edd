"""The reporter: sends starts, results, progress, extensions and releases in as few requests as possible.

Reports made while a request is in flight go with the next request; many reports get a request of their own beside it,
so that the service works on one wave of tasks while the worker works on another (docs/workers.md). A result is sent
again until the service accepts or refuses it, without a time limit, always under the worker id that claimed the task,
also after the worker has registered again.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from typing import Protocol as Interface

import msgspec
import structlog

from tideq.queue_core.background import run_all
from tideq.workers.runtime.backoff import PollBackoff
from tideq.workers.runtime.failures import Fail, error_document
from tideq.workers.runtime.report_buffer import ReportBatch, ReportBuffer, Result
from tideq.workers.runtime.service_api import RowOutcome, ServiceApi, ServiceRefusal, ServiceReply, Unreachable

MAX_IN_FLIGHT = 3
MANY_REPORTS = 100
"""From this many reports on, a second request is sent beside the one in flight."""

log = structlog.get_logger("tideq.worker")


class Claims(Interface):
    """Claims tasks with the requests that carry reports; each claim is repeated until its reply arrives."""

    def claim_now(self, worker_id: str, *, claim_new: bool) -> dict[str, Any]: ...

    def handle_reply(self, worker_id: str, reply: ServiceReply | None) -> None:
        """`reply` is None where the claim was refused."""
        ...


class Reporter:
    """Calls `on_lost` with leases that no longer hold, and `on_unknown` with worker ids that are not registered.

    Calls `on_settled` for each result that was accepted, or refused with the given problem.
    """

    def __init__(
        self,
        api: ServiceApi,
        on_reply: Callable[[str, ServiceReply], None],
        on_lost: Callable[[str], None],
        on_unknown: Callable[[str], None],
        on_settled: Callable[[str, str], None] = lambda lease, problem: None,
    ) -> None:
        self._api = api
        self._on_reply = on_reply
        self._on_lost = on_lost
        self._on_unknown = on_unknown
        self._on_settled = on_settled
        self.claims: Claims | None = None
        self._backoff = PollBackoff()
        self._unsent: dict[ReportBuffer, None] = {}
        self._in_flight: list[ReportBatch] = []
        self._has_reports, self._has_many, self._is_idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_idle.set()
        self._delivered = asyncio.Event()

    def new_buffer(self, worker_id: str) -> ReportBuffer:
        return ReportBuffer(worker_id, self._mark_unsent)

    @property
    def unsent_count(self) -> int:
        in_flight = sum(len(batch.results) for batch in list(self._in_flight))
        return sum(buffer.unsent_count for buffer in list(self._unsent)) + in_flight

    @property
    def is_busy(self) -> bool:
        return self._has_reports.is_set()

    async def next_delivery(self) -> None:
        """Waits until a request has been answered or has failed."""
        self._delivered.clear()
        await self._delivered.wait()

    async def all_delivered(self) -> None:
        """Waits until every report, also one made meanwhile, has been accepted or refused."""
        while self._unsent or self._in_flight:
            await self._is_idle.wait()

    async def run(self) -> None:
        await run_all(self._deliver_all(), *(self._deliver_many() for _ in range(MAX_IN_FLIGHT - 1)))

    async def _deliver_all(self) -> None:
        while True:
            await self._has_reports.wait()
            for buffer in list(self._unsent):
                await self._deliver(buffer, may_claim=True)

    async def _deliver_many(self) -> None:
        """Sends only beside a request in flight: while the service is away, one request retries. Claims nothing."""
        while True:
            await self._has_many.wait()
            self._has_many.clear()
            for buffer in list(self._unsent):
                if self._is_worth_another(buffer):
                    await self._deliver(buffer, may_claim=False)

    def _is_worth_another(self, buffer: ReportBuffer) -> bool:
        return bool(self._in_flight) and buffer.unsent_count >= MANY_REPORTS

    def _mark_unsent(self, buffer: ReportBuffer) -> None:
        self._unsent[buffer] = None
        self._is_idle.clear()
        self._has_reports.set()
        if self._is_worth_another(buffer):
            self._has_many.set()

    async def _deliver(self, buffer: ReportBuffer, *, may_claim: bool) -> None:
        batch = buffer.take()
        self._in_flight.append(batch)
        try:
            await self._send(buffer.worker_id, batch, may_claim=may_claim)
            self._backoff.reset()
        except Unreachable as error:
            self._put_back(buffer, batch)
            log.warning("report delivery failed, retrying", error=str(error), unsent=self.unsent_count)
            await self._backoff.wait(error.retry_after_seconds)
        except asyncio.CancelledError:
            self._put_back(buffer, batch)
            raise
        else:
            self._in_flight.remove(batch)
        self._mark_idle(buffer)
        self._delivered.set()

    def _put_back(self, buffer: ReportBuffer, batch: ReportBatch) -> None:
        buffer.put_back(batch)
        self._in_flight.remove(batch)
        self._mark_unsent(buffer)

    def _mark_idle(self, buffer: ReportBuffer) -> None:
        if buffer.is_empty:
            self._unsent.pop(buffer, None)
        if not self._unsent:
            self._has_reports.clear()
            if not self._in_flight:
                self._is_idle.set()

    async def _send(self, worker_id: str, batch: ReportBatch, *, may_claim: bool) -> None:
        parts = batch.parts()
        if not parts:
            return
        # Not with starts: short tasks free their slots before the next request, which then claims all of them at once.
        claim_new = bool(batch.results) and not batch.starts
        claim = self.claims.claim_now(worker_id, claim_new=claim_new) if self.claims and may_claim else {}
        try:
            reply = await self._api.sync(worker_id, **parts, **claim)
        except ServiceRefusal as error:
            log.warning("report batch refused, sending reports one by one", error=str(error))
            if claim and self.claims:
                self.claims.handle_reply(worker_id, await self._poll_alone(worker_id, claim))
            await self._send_one_by_one(worker_id, batch)
            if error.is_unknown_worker:
                self._on_unknown(worker_id)
            return
        self._handle_reply(batch, reply.outcomes)
        if claim and self.claims:
            self.claims.handle_reply(worker_id, reply)
        else:
            self._on_reply(worker_id, reply)

    def _handle_reply(self, batch: ReportBatch, outcomes: list[RowOutcome]) -> None:
        for start, outcome in zip(batch.starts, outcomes, strict=False):
            start.resolve(outcome)
        for row, outcome in zip(batch.rest(), outcomes[len(batch.starts) :], strict=False):
            if not outcome.ok:
                log.info("report refused", task_id=row.task_id, problem=outcome.code)
                self._on_lost(row.lease)
            if isinstance(row, Result):
                self._on_settled(row.lease, outcome.code)

    async def _poll_alone(self, worker_id: str, claim: dict[str, Any]) -> ServiceReply | None:
        """The refused request may have been carried out before, and its tasks started: repeat the claim alone."""
        try:
            return await self._api.sync(worker_id, **claim)
        except ServiceRefusal:
            return None

    async def _send_one_by_one(self, worker_id: str, batch: ReportBatch) -> None:
        """One invalid report refuses its batch, or the worker is not registered any more.

        Answered reports leave the batch, so that the rest can be put back if the service goes away.
        """
        while batch.starts:
            start = batch.starts[0]
            refused = await self._send_one(worker_id, "start", start.held)
            start.resolve(RowOutcome(start.held.task_id, ok=refused is None, problem=refused and refused.problem))
            batch.starts.pop(0)
        for verb, rows in (("progress", batch.progress), ("extend", batch.extends)):
            await self._send_rows(worker_id, verb, rows)
        await self._send_results(worker_id, batch.results)
        if batch.releases:
            await self._release(worker_id, batch)

    async def _send_rows(self, worker_id: str, verb: str, rows: list[Any]) -> None:
        while rows:
            if refused := await self._send_one(worker_id, verb, rows[0]):
                self._note_refusal(verb, rows[0], refused)
            rows.pop(0)

    async def _send_results(self, worker_id: str, results: list[Result]) -> None:
        while results:
            refused = await self._send_one(worker_id, "result", results[0])
            if refused and refused.is_invalid_request and results[0].status == "completed":
                results[0] = _as_failure(results[0], refused)
                continue
            if refused:
                self._note_refusal("result", results[0], refused)
            self._on_settled(results.pop(0).lease, refused.problem.code if refused else "")

    async def _release(self, worker_id: str, batch: ReportBatch) -> None:
        """There is no single call for a release. The tasks of an unknown worker are requeued already."""
        try:
            await self._api.sync(worker_id, releases=batch.releases)
        except ServiceRefusal as error:
            log.info("release refused", error=str(error))
        batch.releases.clear()

    async def _send_one(self, worker_id: str, verb: str, row: Any) -> ServiceRefusal | None:
        try:
            await self._api.call(worker_id, verb, row)
        except ServiceRefusal as error:
            return error
        return None

    def _note_refusal(self, verb: str, row: Any, refused: ServiceRefusal) -> None:
        log.warning("report refused", verb=verb, task_id=row.task_id, error=str(refused))
        if not refused.is_invalid_request:
            self._on_lost(row.lease)


def _as_failure(result: Result, refused: ServiceRefusal) -> Result:
    """Fails the task instead: a result the service can never accept would be computed again and again."""
    error = Fail(f"the service refused the result: {refused}", code="INVALID_RESULT")
    return msgspec.structs.replace(
        result, status="failed", result=msgspec.UNSET, error=msgspec.Raw(error_document(error))
    )
