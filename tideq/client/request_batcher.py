"""Batches single submissions that are in flight at the same time.

A request for one task costs the service 130 to 590 µs and this process 100; each further task costs 15 and 10. So
the first task is sent alone and at once; tasks submitted while it is in flight share the next request. No task waits
for tasks that have not been submitted, nor for a failed request that is about to be retried.

Each task is accepted or refused by itself: a refused request has changed nothing, and its tasks are then submitted one
by one. Where a response was lost the same request is sent again, under one key for all its tasks.
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
from tideq.client.models.tasks import NewTask, Submitted
from tideq.client.retrying import RetryPolicy, RetryState

MAX_IN_FLIGHT = 2
"""The next request is prepared while the service handles one: 26,900 tasks a second of 32 callers, 19,800 with one."""
MIN_TOGETHER = 8
"""Fewer tasks wait for the request in flight: a second request would cost more than it saves."""
MAX_TASKS = 256
MAX_BYTES = 262_144
"""A larger task is sent alone and does not delay small ones."""


class RequestBatcher:
    """The blocking form, without batches: threads share connections, not requests."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(self, task: NewTask, trace: Mapping[str, str]) -> Submitted:
        return self._transport.request(submission.submit(task, trace))


class AsyncRequestBatcher:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._groups: dict[Hashable, _Group] = {}
        """Only groups with requests in flight."""

    async def submit(self, task: NewTask, trace: Mapping[str, str]) -> Submitted:
        if task.durability != "store" or task.task_id is not None:
            return await self._transport.request(submission.submit(task, trace))
        body, group_key = encode(task), _group_key(task, trace)
        if (group_in_flight := self._groups.get(group_key)) is not None:
            return await group_in_flight.join(body)
        group = self._groups[group_key] = _Group(self._transport, trace, lambda: self._forget(group_key, group))
        return await group.lead(body)

    def _forget(self, group_key: Hashable, group: "_Group") -> None:
        if self._groups.get(group_key) is group:
            del self._groups[group_key]


def _group_key(task: NewTask, trace: Mapping[str, str]) -> Hashable:
    """Tasks of one request share its headers and its client.

    Tasks with their own keys may lie in several partitions, where a batch is not all or none, so they are kept apart.
    """
    loop = asyncio.get_running_loop()
    return loop, tuple(trace.items()), task.client_id, task.idempotency_key is None


class _Waiting:
    """A task that waits for its request, or whose request is in flight."""

    def __init__(self, body: bytes, answer: "asyncio.Future[Submitted]") -> None:
        self.body = body
        self.answer = answer
        self.request: _Request | None = None


class _Request(NamedTuple):
    together: Sequence[_Waiting]
    sending: "asyncio.Task[None]"

    def cancel_if_unwanted(self) -> None:
        if all(each.answer.done() for each in self.together):
            self.sending.cancel()


class _Slot:
    """A request's place among those in flight."""

    def __init__(self, group: "_Group", count: int) -> None:
        self._group, self._count = group, count
        group.in_flight.append(count)

    def leave(self) -> None:
        """Called when the request ends, or fails for the first time."""
        if self._count:
            self._group.in_flight.remove(self._count)
            self._count = 0
            self._group.send_soon()


class _Group:
    def __init__(self, transport: AsyncTransport, trace: Mapping[str, str], on_end: Callable[[], object]) -> None:
        self.in_flight: list[int] = []
        """Number of tasks of each request in flight."""
        self._transport = transport
        self._trace = trace
        self._on_end = on_end
        self._waiting = deque[_Waiting]()
        self._sending = set[asyncio.Task[None]]()
        self._is_scheduled = False

    async def lead(self, body: bytes) -> Submitted:
        """Submits the first task of the group alone, at once."""
        slot = _Slot(self, 1)
        try:
            call = submission.submit_encoded(body, self._trace)
            return await self._transport.request(call, attempts=_NotifyingRetry(self._transport.policy, slot.leave))
        finally:
            slot.leave()
            self._end_if_idle()  # sequential submissions each start a new group

    async def join(self, body: bytes) -> Submitted:
        waiting = _Waiting(body, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self.send_soon()
        try:
            return await waiting.answer
        except asyncio.CancelledError:
            if waiting.request is not None:
                waiting.request.cancel_if_unwanted()
            raise

    def send_soon(self) -> None:
        """Sends after two turns of the loop: callers just answered may submit more tasks."""
        if not self._is_scheduled:
            self._is_scheduled = True
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._send_waiting)

    def _send_waiting(self) -> None:
        self._is_scheduled = False
        while self._may_send() and (together := self._next()):
            sending = asyncio.ensure_future(self._send(together, _Slot(self, len(together))))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
            for each in together:
                each.request = _Request(together, sending)
        self._end_if_idle()

    def _may_send(self) -> bool:
        return not self.in_flight or (len(self.in_flight) < MAX_IN_FLIGHT and len(self._waiting) >= MIN_TOGETHER)

    def _end_if_idle(self) -> None:
        if not self.in_flight and not self._waiting:
            self._on_end()

    def _next(self) -> list[_Waiting]:
        """Takes tasks in order, at most an equal share for each request; skips cancelled callers."""
        taken, size = list[_Waiting](), 0
        share = max(-(-(len(self._waiting) + sum(self.in_flight)) // MAX_IN_FLIGHT), MIN_TOGETHER)
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
                await self._send_alone(together[0], _NotifyingRetry(self._transport.policy, slot.leave))
            else:
                await self._send_together(together, slot)
        finally:
            slot.leave()
            for each in together:
                each.answer.cancel()  # after a cancellation; no effect on answered callers

    async def _send_alone(self, waiting: _Waiting, attempts: RetryState) -> None:
        try:
            call = submission.submit_encoded(waiting.body, self._trace)
            answer = await self._transport.request(call, attempts=attempts)
        except Exception as error:
            # Every error must reach the caller: no other code reports it.
            if not waiting.answer.done():
                waiting.answer.set_exception(error)
        else:
            if not waiting.answer.done():
                waiting.answer.set_result(answer)

    async def _send_together(self, together: Sequence[_Waiting], slot: _Slot) -> None:
        attempts = _DivisibleRetry(self._transport.policy, slot.leave)
        bodies = [each.body for each in together]
        try:
            answers = await self._transport.request(submission.submit_together(bodies, self._trace), attempts=attempts)
            if len(answers) != len(together):
                raise BadAnswer(f"{len(together)} tasks were submitted, but the response has {len(answers)}")
        except TideqError as error:
            if attempts.changed_nothing(error):
                slot.leave()
                await self._send_each(together)
            else:
                _fail(together, error)
        except Exception as error:
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
                    each.request = _Request([each], alone)  # cancelled with its caller


class _NotifyingRetry(RetryState):
    """Calls back when an attempt has failed."""

    def __init__(self, policy: RetryPolicy, on_failure: Callable[[], None]) -> None:
        super().__init__(policy)
        self._on_failure = on_failure

    def delay(self, error: TideqError, *, is_repeatable: bool = True) -> float | None:
        self._on_failure()
        return super().delay(error, is_repeatable=is_repeatable)


class _DivisibleRetry(_NotifyingRetry):
    """Does not wait after a refusal of the whole request: its tasks may be accepted one by one at once.

    Unless an earlier attempt may have been carried out: then its key must be kept, and a transient refusal is waited
    out.
    """

    def delay(self, error: TideqError, *, is_repeatable: bool = True) -> float | None:
        return None if self.changed_nothing(error) else super().delay(error, is_repeatable=is_repeatable)

    def changed_nothing(self, error: TideqError) -> bool:
        if not isinstance(error, Refusal) or error.may_have_run:
            return False
        return not (self.may_have_run and error.is_transient)


def _fail(together: Sequence[_Waiting], error: Exception) -> None:
    for each in together:
        if not each.answer.done():
            each.answer.set_exception(_copy_of(error))


def _copy_of(error: Exception) -> Exception:
    """A copy for each caller, so that a note added by one caller does not reach the others."""
    is_refusal = isinstance(error, Refusal)
    copy = type(error)(error.problem, error.retry_after) if is_refusal else type(error)(*error.args)
    for note in getattr(error, "__notes__", ()):
        copy.add_note(note)
    copy.__cause__ = error
    return copy
