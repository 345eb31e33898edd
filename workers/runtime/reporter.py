"""The reporter: starts, results, progress and the like, sent together in as few round trips as possible.

While a request is under way, what is said goes with the next; only where much is said it goes beside it, so that the
service works on one wave of tasks while the worker works on another (docs/workers.md). A finished result is kept and
sent again until the service accepts or refuses it, however long that takes. It is always told in the name of the worker
id it was claimed under, also after the worker had to register anew.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from typing import Protocol as Interface

import msgspec
import structlog

from tideq.queue_core.background import run_all
from tideq.workers.runtime.backoff import Backoff
from tideq.workers.runtime.failures import Fail, error_document
from tideq.workers.runtime.report_buffer import ReportBatch, ReportBuffer, Result
from tideq.workers.runtime.service_api import ReportOutcome, ServiceApi, ServiceRefusal, ServiceReply, Unreachable

MAX_UNDER_WAY = 3
PLENTY = 100
"""So many rows are worth a request of their own beside one that is under way."""

log = structlog.get_logger("tideq.worker")


class Claims(Interface):
    """Who asks for work with reports. What was asked for is answered, refused with None, or asked again."""

    def claim_now(self, worker_id: str, *, is_time: bool) -> dict[str, Any]: ...

    def answered(self, worker_id: str, answer: ServiceReply | None) -> None: ...


class Reporter:
    """`on_lost` hears of leases that no longer hold their task, `on_unknown` of worker ids the service forgot.

    `on_settled` hears of results the service took, or refused for the problem it names.
    """

    def __init__(
        self,
        protocol: ServiceApi,
        on_answer: Callable[[str, ServiceReply], None],
        on_lost: Callable[[str], None],
        on_unknown: Callable[[str], None],
        on_settled: Callable[[str, str], None] = lambda lease, problem: None,
    ) -> None:
        self._protocol = protocol
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._on_unknown = on_unknown
        self._on_settled = on_settled
        self.claims: Claims | None = None
        self._patience = Backoff()
        self._full: dict[ReportBuffer, None] = {}
        self._sending: list[ReportBatch] = []
        self._has_mail, self._has_plenty, self._has_none = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._has_none.set()
        self._delivered = asyncio.Event()

    def mailbox(self, worker_id: str) -> ReportBuffer:
        return ReportBuffer(worker_id, self._note)

    @property
    def unsent_count(self) -> int:
        under_way = sum(len(bundle.results) for bundle in list(self._sending))
        return sum(box.unsent_count for box in list(self._full)) + under_way

    @property
    def is_busy(self) -> bool:
        return self._has_mail.is_set()

    async def next_delivery(self) -> None:
        """Returns once a request has been answered, or was given up."""
        self._delivered.clear()
        await self._delivered.wait()

    async def silent(self) -> None:
        """Returns once everything said so far, and what that brought about, has been accepted or refused."""
        while self._full or self._sending:
            await self._has_none.wait()

    async def run(self) -> None:
        await run_all(self._deliver_all(), *(self._deliver_plenty() for _ in range(MAX_UNDER_WAY - 1)))

    async def _deliver_all(self) -> None:
        while True:
            await self._has_mail.wait()
            for mailbox in list(self._full):
                await self._deliver(mailbox, may_ask=True)

    async def _deliver_plenty(self) -> None:
        """Beside a request that is under way: a service that is away is tried by that one alone. Asks for no work."""
        while True:
            await self._has_plenty.wait()
            self._has_plenty.clear()
            for mailbox in list(self._full):
                if self._is_worth_another(mailbox):
                    await self._deliver(mailbox, may_ask=False)

    def _is_worth_another(self, mailbox: ReportBuffer) -> bool:
        return bool(self._sending) and mailbox.unsent_count >= PLENTY

    def _note(self, mailbox: ReportBuffer) -> None:
        self._full[mailbox] = None
        self._has_none.clear()
        self._has_mail.set()
        if self._is_worth_another(mailbox):
            self._has_plenty.set()

    async def _deliver(self, mailbox: ReportBuffer, *, may_ask: bool) -> None:
        bundle = mailbox.take()
        self._sending.append(bundle)
        try:
            await self._send(mailbox.worker_id, bundle, may_ask=may_ask)
            self._patience.restore()
        except Unreachable as error:
            self._put_back(mailbox, bundle)
            log.warning("reports not delivered, trying again", error=str(error), unsent=self.unsent_count)
            await self._patience.wait(error.retry_after_seconds)
        except asyncio.CancelledError:
            self._put_back(mailbox, bundle)
            raise
        else:
            self._sending.remove(bundle)
        self._rest_if_done(mailbox)
        self._delivered.set()

    def _put_back(self, mailbox: ReportBuffer, bundle: ReportBatch) -> None:
        mailbox.put_back(bundle)
        self._sending.remove(bundle)
        self._note(mailbox)

    def _rest_if_done(self, mailbox: ReportBuffer) -> None:
        if mailbox.is_empty:
            self._full.pop(mailbox, None)
        if not self._full:
            self._has_mail.clear()
            if not self._sending:
                self._has_none.set()

    async def _send(self, worker_id: str, bundle: ReportBatch, *, may_ask: bool) -> None:
        parts = bundle.parts()
        if not parts:
            return
        # Not beside starts: what runs a moment frees its slot for the next request, which then asks for all at once.
        is_time = bool(bundle.results) and not bundle.starts
        asked = self.claims.claim_now(worker_id, is_time=is_time) if self.claims and may_ask else {}
        try:
            answer = await self._protocol.sync(worker_id, **parts, **asked)
        except ServiceRefusal as error:
            log.warning("service refused a bundle of reports, telling one by one", error=str(error))
            if asked and self.claims:
                self.claims.answered(worker_id, await self._poll_alone(worker_id, asked))
            await self._send_one_by_one(worker_id, bundle)
            if error.is_unknown_worker:
                self._on_unknown(worker_id)
            return
        self._handle_reply(bundle, answer.outcomes)
        if asked and self.claims:
            self.claims.answered(worker_id, answer)
        else:
            self._on_answer(worker_id, answer)

    def _handle_reply(self, bundle: ReportBatch, outcomes: list[ReportOutcome]) -> None:
        for start, outcome in zip(bundle.starts, outcomes, strict=False):
            start.answer(outcome)
        for row, outcome in zip(bundle.rest(), outcomes[len(bundle.starts) :], strict=False):
            if not outcome.ok:
                log.info("service refused a report", task_id=row.task_id, problem=outcome.code)
                self._on_lost(row.lease)
            if isinstance(row, Result):
                self._on_settled(row.lease, outcome.code)

    async def _poll_alone(self, worker_id: str, asked: dict[str, Any]) -> ServiceReply | None:
        """It may have been heard before, with other reports, and its tasks be started."""
        try:
            return await self._protocol.sync(worker_id, **asked)
        except ServiceRefusal:
            return None

    async def _send_one_by_one(self, worker_id: str, bundle: ReportBatch) -> None:
        """One report may have spoilt the others; or all were heard, from a worker the service no longer knows.

        What is answered leaves the bundle, so that what is left can be put back when the service goes away.
        """
        while bundle.starts:
            start = bundle.starts[0]
            refused = await self._send_one(worker_id, "start", start.held)
            start.answer(ReportOutcome(start.held.task_id, ok=refused is None, problem=refused and refused.problem))
            bundle.starts.pop(0)
        for verb, rows in (("progress", bundle.progress), ("extend", bundle.extends)):
            await self._send_rows(worker_id, verb, rows)
        await self._send_results(worker_id, bundle.results)
        if bundle.releases:
            await self._release(worker_id, bundle)

    async def _send_rows(self, worker_id: str, verb: str, rows: list[Any]) -> None:
        while rows:
            if refused := await self._send_one(worker_id, verb, rows[0]):
                self._note_refusal(verb, rows[0], refused)
            rows.pop(0)

    async def _send_results(self, worker_id: str, results: list[Result]) -> None:
        while results:
            refused = await self._send_one(worker_id, "result", results[0])
            if refused and refused.is_about_content and results[0].status == "completed":
                results[0] = _unacceptable(results[0], refused)
                continue
            if refused:
                self._note_refusal("result", results[0], refused)
            self._on_settled(results.pop(0).lease, refused.problem.code if refused else "")

    async def _release(self, worker_id: str, bundle: ReportBatch) -> None:
        """There is no single call for it; from an unknown worker it has been heard all the same."""
        try:
            await self._protocol.sync(worker_id, releases=bundle.releases)
        except ServiceRefusal as error:
            log.info("service refused to take tasks back", error=str(error))
        bundle.releases.clear()

    async def _send_one(self, worker_id: str, verb: str, row: Any) -> ServiceRefusal | None:
        try:
            await self._protocol.call(worker_id, verb, row)
        except ServiceRefusal as error:
            return error
        return None

    def _note_refusal(self, verb: str, row: Any, refused: ServiceRefusal) -> None:
        log.warning("service refused a report", verb=verb, task_id=row.task_id, error=str(refused))
        if not refused.is_about_content:
            self._on_lost(row.lease)


def _unacceptable(result: Result, refused: ServiceRefusal) -> Result:
    """A result the service can never take would be computed again and again: say what is wrong with it instead."""
    error = Fail(f"the service cannot take the result: {refused}", code="INVALID_RESULT")
    return msgspec.structs.replace(
        result, status="failed", result=msgspec.UNSET, error=msgspec.Raw(error_document(error))
    )
