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

from tideq.queue_core.background import together
from tideq.workers.runtime.failures import Fail, error_document
from tideq.workers.runtime.report_buffer import Bundle, Mailbox, Result
from tideq.workers.runtime.backoff import Patience
from tideq.workers.runtime.service_api import Answer, Outcome, Protocol, Refused, Unreachable

MAX_UNDER_WAY = 3
PLENTY = 100
"""So many rows are worth a request of their own beside one that is under way."""

log = structlog.get_logger("tideq.worker")


class Claims(Interface):
    """Who asks for work with reports. What was asked for is answered, refused with None, or asked again."""

    def ask(self, worker_id: str, *, is_time: bool) -> dict[str, Any]: ...

    def answered(self, worker_id: str, answer: Answer | None) -> None: ...


class Reporter:
    """`on_lost` hears of leases that no longer hold their task, `on_unknown` of worker ids the service forgot.

    `on_settled` hears of results the service took, or refused for the problem it names.
    """

    def __init__(
        self,
        protocol: Protocol,
        on_answer: Callable[[str, Answer], None],
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
        self._patience = Patience()
        self._full: dict[Mailbox, None] = {}
        self._sending: list[Bundle] = []
        self._has_mail, self._has_plenty, self._has_none = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._has_none.set()
        self._delivered = asyncio.Event()

    def mailbox(self, worker_id: str) -> Mailbox:
        return Mailbox(worker_id, self._note)

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
        await together(self._deliver_all(), *(self._deliver_plenty() for _ in range(MAX_UNDER_WAY - 1)))

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

    def _is_worth_another(self, mailbox: Mailbox) -> bool:
        return bool(self._sending) and mailbox.unsent_count >= PLENTY

    def _note(self, mailbox: Mailbox) -> None:
        self._full[mailbox] = None
        self._has_none.clear()
        self._has_mail.set()
        if self._is_worth_another(mailbox):
            self._has_plenty.set()

    async def _deliver(self, mailbox: Mailbox, *, may_ask: bool) -> None:
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

    def _put_back(self, mailbox: Mailbox, bundle: Bundle) -> None:
        mailbox.put_back(bundle)
        self._sending.remove(bundle)
        self._note(mailbox)

    def _rest_if_done(self, mailbox: Mailbox) -> None:
        if mailbox.is_empty:
            self._full.pop(mailbox, None)
        if not self._full:
            self._has_mail.clear()
            if not self._sending:
                self._has_none.set()

    async def _send(self, worker_id: str, bundle: Bundle, *, may_ask: bool) -> None:
        parts = bundle.parts()
        if not parts:
            return
        # Not beside starts: what runs a moment frees its slot for the next request, which then asks for all at once.
        is_time = bool(bundle.results) and not bundle.starts
        asked = self.claims.ask(worker_id, is_time=is_time) if self.claims and may_ask else {}
        try:
            answer = await self._protocol.sync(worker_id, **parts, **asked)
        except Refused as error:
            log.warning("service refused a bundle of reports, telling one by one", error=str(error))
            if asked and self.claims:
                self.claims.answered(worker_id, await self._ask_alone(worker_id, asked))
            await self._say_one_by_one(worker_id, bundle)
            if error.is_unknown_worker:
                self._on_unknown(worker_id)
            return
        self._hear(bundle, answer.outcomes)
        if asked and self.claims:
            self.claims.answered(worker_id, answer)
        else:
            self._on_answer(worker_id, answer)

    def _hear(self, bundle: Bundle, outcomes: list[Outcome]) -> None:
        for start, outcome in zip(bundle.starts, outcomes, strict=False):
            start.answer(outcome)
        for row, outcome in zip(bundle.rest(), outcomes[len(bundle.starts) :], strict=False):
            if not outcome.ok:
                log.info("service refused a report", task_id=row.task_id, problem=outcome.code)
                self._on_lost(row.lease)
            if isinstance(row, Result):
                self._on_settled(row.lease, outcome.code)

    async def _ask_alone(self, worker_id: str, asked: dict[str, Any]) -> Answer | None:
        """It may have been heard before, with other reports, and its tasks be started."""
        try:
            return await self._protocol.sync(worker_id, **asked)
        except Refused:
            return None

    async def _say_one_by_one(self, worker_id: str, bundle: Bundle) -> None:
        """One report may have spoilt the others; or all were heard, from a worker the service no longer knows.

        What is answered leaves the bundle, so that what is left can be put back when the service goes away.
        """
        while bundle.starts:
            start = bundle.starts[0]
            refused = await self._say(worker_id, "start", start.held)
            start.answer(Outcome(start.held.task_id, ok=refused is None, problem=refused and refused.problem))
            bundle.starts.pop(0)
        for verb, rows in (("progress", bundle.progress), ("extend", bundle.extends)):
            await self._say_rows(worker_id, verb, rows)
        await self._say_results(worker_id, bundle.results)
        if bundle.releases:
            await self._release(worker_id, bundle)

    async def _say_rows(self, worker_id: str, verb: str, rows: list[Any]) -> None:
        while rows:
            if refused := await self._say(worker_id, verb, rows[0]):
                self._note_refusal(verb, rows[0], refused)
            rows.pop(0)

    async def _say_results(self, worker_id: str, results: list[Result]) -> None:
        while results:
            refused = await self._say(worker_id, "result", results[0])
            if refused and refused.is_about_content and results[0].status == "completed":
                results[0] = _unacceptable(results[0], refused)
                continue
            if refused:
                self._note_refusal("result", results[0], refused)
            self._on_settled(results.pop(0).lease, refused.problem.code if refused else "")

    async def _release(self, worker_id: str, bundle: Bundle) -> None:
        """There is no single call for it; from an unknown worker it has been heard all the same."""
        try:
            await self._protocol.sync(worker_id, releases=bundle.releases)
        except Refused as error:
            log.info("service refused to take tasks back", error=str(error))
        bundle.releases.clear()

    async def _say(self, worker_id: str, verb: str, row: Any) -> Refused | None:
        try:
            await self._protocol.say(worker_id, verb, row)
        except Refused as error:
            return error
        return None

    def _note_refusal(self, verb: str, row: Any, refused: Refused) -> None:
        log.warning("service refused a report", verb=verb, task_id=row.task_id, error=str(refused))
        if not refused.is_about_content:
            self._on_lost(row.lease)


def _unacceptable(result: Result, refused: Refused) -> Result:
    """A result the service can never take would be computed again and again: say what is wrong with it instead."""
    error = Fail(f"the service cannot take the result: {refused}", code="INVALID_RESULT")
    return msgspec.structs.replace(
        result, status="failed", result=msgspec.UNSET, error=msgspec.Raw(error_document(error))
    )
