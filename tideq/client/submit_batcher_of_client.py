"""Single submissions that are under way at the same time share requests.

A request for one task costs the service 130 to 590 µs and this process 100; each more task in the same request costs
15 and 10. So the first goes at once and by itself, as it always did, and what comes while it is under way goes together
in the next request. Nobody waits for what has not come, nor for a request that has failed and is about to be tried
again.

Whether a task is taken does not depend on its company: a request that is refused has changed nothing, and every task of
it is then submitted by itself. Where an answer was lost the same request is sent again, under one key for all of it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from tideq.client._async.transport import AsyncTransport
from tideq.client._sync.transport import Transport
from tideq.client.calls import submission
from tideq.client.encoding import encode
from tideq.client.errors import BadAnswer, Refusal, TideqError
from tideq.client.http.pools import AsyncPool
from tideq.client.models.tasks import NewTask, Submitted
from tideq.client.retrying import RetryPolicy, RetryState

MAX_UNDER_WAY = 2
"""While the service works on one, the next is made ready: 26,900 tasks a second of 32 submitters, 19,800 with one."""
MIN_TOGETHER = 8
"""Fewer wait for the request that is under way: a second one would cost more than it wins."""
MAX_TASKS = 256
MAX_BYTES = 262_144
"""A large one goes alone, and does not keep small ones waiting."""


class RequestBatcher:
    """For programs that wait for each answer: threads share connections, not requests."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(self, task: NewTask, trace: Mapping[str, str]) -> Submitted:
        return self._transport.ask(submission.submit(task, trace))


class AsyncRequestBatcher:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._groups: dict[Hashable, _Group] = {}
        """Only those that have something under way."""

    async def submit(self, task: NewTask, trace: Mapping[str, str]) -> Submitted:
        if task.durability != "store" or task.task_id is not None or not AsyncPool.fits_here():
            return await self._transport.ask(submission.submit(task, trace))
        body, alike = encode(task), _alike(task, trace)
        if (known := self._groups.get(alike)) is not None:
            return await known.join(body)
        group = self._groups[alike] = _Group(self._transport, trace, lambda: self._forget(alike, group))
        return await group.lead(body)

    def _forget(self, alike: Hashable, group: "_Group") -> None:
        if self._groups.get(alike) is group:
            del self._groups[alike]


def _alike(task: NewTask, trace: Mapping[str, str]) -> Hashable:
    """Tasks of one request share its headers, and are of one client. Those with keys of their own may lie in several
    partitions, and are taken all or none only each by itself: with others they could not be told apart afterwards."""
    loop = asyncio.get_running_loop()
    return loop, tuple(trace.items()), task.client_id, task.idempotency_key is None


class _Waiting:
    """A task whose turn has not come, or is under way with others."""

    def __init__(self, body: bytes, answer: "asyncio.Future[Submitted]") -> None:
        self.body = body
        self.answer = answer
        self.request: _Request | None = None


class _Request(NamedTuple):
    together: Sequence[_Waiting]
    sending: "asyncio.Task[None]"

    def end_if_unwanted(self) -> None:
        if all(each.answer.done() for each in self.together):
            self.sending.cancel()


class _Slot:
    """A request's place among those under way."""

    def __init__(self, group: "_Group", count: int) -> None:
        self._group, self._count = group, count
        group.under_way.append(count)

    def leave(self) -> None:
        """As it ends, or fails for the first time."""
        if self._count:
            self._group.under_way.remove(self._count)
            self._count = 0
            self._group.go_soon()


class _Group:
    def __init__(self, transport: AsyncTransport, trace: Mapping[str, str], on_end: Callable[[], object]) -> None:
        self.under_way: list[int] = []
        """How many tasks each request has."""
        self._transport = transport
        self._trace = trace
        self._on_end = on_end
        self._waiting = deque[_Waiting]()
        self._sending = set[asyncio.Task[None]]()
        self._is_going = False

    async def lead(self, body: bytes) -> Submitted:
        """By itself, at once."""
        slot = _Slot(self, 1)
        try:
            call = submission.submit_encoded(body, self._trace)
            return await self._transport.ask(call, attempts=_Impatient(self._transport.policy, slot.leave))
        finally:
            slot.leave()
            self._end_if_idle()  # who submits one after the other leads each time

    async def join(self, body: bytes) -> Submitted:
        waiting = _Waiting(body, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self.go_soon()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if waiting.request is not None:
                waiting.request.end_if_unwanted()
            raise

    def go_soon(self) -> None:
        """When everybody who can run now has run: those who were just answered come back with more."""
        if not self._is_going:
            self._is_going = True
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._go)

    def _go(self) -> None:
        self._is_going = False
        while self._may_go() and (together := self._next()):
            sending = asyncio.ensure_future(self._send(together, _Slot(self, len(together))))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
            for each in together:
                each.request = _Request(together, sending)
        self._end_if_idle()

    def _may_go(self) -> bool:
        return not self.under_way or (len(self.under_way) < MAX_UNDER_WAY and len(self._waiting) >= MIN_TOGETHER)

    def _end_if_idle(self) -> None:
        if not self.under_way and not self._waiting:
            self._on_end()

    def _next(self) -> list[_Waiting]:
        """In the order they came, no more than leaves as much for the other request; none that nobody wants."""
        taken, size = list[_Waiting](), 0
        share = max(-(-(len(self._waiting) + sum(self.under_way)) // MAX_UNDER_WAY), MIN_TOGETHER)
        while self._waiting and len(taken) < min(share, MAX_TASKS):
            size += len(self._waiting[0].body)
            if taken and size > MAX_BYTES:
                break
            first = self._waiting.popleft()
            if not first.answer.done():
                taken.append(first)
        return taken

    async def _send(self, together: Sequence[_Waiting], slot: _Slot) -> None:
        try:
            if len(together) == 1:
                await self._send_alone(together[0], _Impatient(self._transport.policy, slot.leave))
            else:
                await self._send_together(together, slot)
        finally:
            slot.leave()
            for each in together:
                each.answer.cancel()  # where this was broken off: whoever has an answer keeps it

    async def _send_alone(self, waiting: _Waiting, attempts: RetryState) -> None:
        try:
            call = submission.submit_encoded(waiting.body, self._trace)
            answer = await self._transport.ask(call, attempts=attempts)
        except Exception as error:
            # Whatever it is, who waits is told: nobody else would.
            if not waiting.answer.done():
                waiting.answer.set_exception(error)
        else:
            if not waiting.answer.done():
                waiting.answer.set_result(answer)

    async def _send_together(self, together: Sequence[_Waiting], slot: _Slot) -> None:
        attempts = _Divisible(self._transport.policy, slot.leave)
        bodies = [each.body for each in together]
        try:
            answers = await self._transport.ask(submission.submit_gathered(bodies, self._trace), attempts=attempts)
            if len(answers) != len(together):
                raise BadAnswer(f"{len(together)} tasks were submitted and {len(answers)} answered")
        except TideqError as error:
            if attempts.changed_nothing(error):
                slot.leave()
                await self._send_each(together)
            else:
                _fail(together, error)
        except Exception as error:
            # As above.
            _fail(together, error)
        else:
            for each, answer in zip(together, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)

    async def _send_each(self, together: Sequence[_Waiting]) -> None:
        async with asyncio.TaskGroup() as sending:
            for each in together:
                if not each.answer.done():
                    alone = sending.create_task(self._send_alone(each, RetryState(self._transport.policy)))
                    each.request = _Request([each], alone)  # ends with its caller, whatever the others do


class _Impatient(RetryState):
    """Tells when the first attempt has failed."""

    def __init__(self, policy: RetryPolicy, on_failure: Callable[[], None]) -> None:
        super().__init__(policy)
        self._on_failure = on_failure

    def delay(self, error: TideqError, *, is_repeatable: bool = True) -> float | None:
        self._on_failure()
        return super().delay(error, is_repeatable=is_repeatable)


class _Divisible(_Impatient):
    """What refuses all of them is no reason to wait: by themselves they may be taken at once.

    Unless an earlier attempt may have been carried out, or still be: then the key it was made with must be kept, and a
    refusal for lack of room is waited out.
    """

    def delay(self, error: TideqError, *, is_repeatable: bool = True) -> float | None:
        return None if self.changed_nothing(error) else super().delay(error, is_repeatable=is_repeatable)

    def changed_nothing(self, error: TideqError) -> bool:
        if not isinstance(error, Refusal) or error.may_be_done:
            return False
        return not (self.may_be_done and error.may_pass)


def _fail(together: Sequence[_Waiting], error: Exception) -> None:
    for each in together:
        if not each.answer.done():
            each.answer.set_exception(_own(error))


def _own(error: Exception) -> Exception:
    """An error for each: what one caller adds to it is not another's."""
    is_refusal = isinstance(error, Refusal)
    own = type(error)(error.problem, error.retry_after) if is_refusal else type(error)(*error.args)
    for note in getattr(error, "__notes__", ()):
        own.add_note(note)
    own.__cause__ = error
    return own
