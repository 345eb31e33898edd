"""Driving the queue by hand: take tasks out, and say later what became of each."""

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, overload

import msgspec

from tideq.client._async.client import AsyncClient
from tideq.client._async.transport import AsyncTransport
from tideq.client.calls import pulling as calls
from tideq.client.calls.submission import Batch, cut
from tideq.client.errors import Conflict, NotFound, NotHeld, TideqError, UnknownWorker
from tideq.client.heart import Heart
from tideq.client.marking import Marks
from tideq.client.models.pulled import Outcome, PulledTask
from tideq.client.models.tasks import Backoff, Cancelled, NewTask, Retried, Submitted
from tideq.client.options import strict
from tideq.client.refusals import refused_by

DEFAULT_SIZE = 5
LEAVE_SECONDS = 5.0

Ids = list[str] | tuple[str, ...] | AbstractSet[str] | Mapping[str, Any]
"""Many tasks. A text is one."""


@strict
class AsyncPullQueue:
    """The tasks of one type, for code that wants no worker runtime around it.

    A task that was dequeued is yours for `visibility_timeout` seconds, its own timeout by default. If nothing is said
    about it by then it goes back, at the cost of a retry; if this process dies, it comes back as soon as the service
    misses its heartbeats, which a thread sends meanwhile. On leaving, what is still held is handed back for free.

    `max_attempts` and `backoff` are for tasks that are enqueued here and say nothing of their own; `visibility_timeout`
    and `batch_size` for all that is taken here without saying more.

    Taking tasks needs a worker's key and handing them in a producer's; an admin's can do both. Where you have one of
    each, give a client with the worker's as `worker`.

    >>> from tideq.client.bulk import AsyncPullQueue
    >>> async with AsyncPullQueue(client, "speak") as queue:
    ...     submitted = await queue.enqueue([{"text": "high tide"}, {"text": "low tide"}])
    ...     for task in await queue.dequeue(2, visibility_timeout=60):
    ...         await queue.mark_as_complete(task.task_id, {"letters": len(task.parameters["text"])})
    >>> [(await client.get(each.task_id)).result for each in submitted]
    [{'letters': 9}, {'letters': 8}]
    """

    def __init__(
        self,
        client: AsyncClient,
        task_type: str,
        *,
        capabilities: Sequence[str] = (),
        worker: AsyncClient | None = None,
        name: str = "pull",
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        visibility_timeout: float | None = None,
        batch_size: int = DEFAULT_SIZE,
    ) -> None:
        if max_attempts is not None and max_attempts < 1:
            raise ValueError(f"max_attempts={max_attempts}: a task is tried once at least")
        self.batch_size = batch_size
        self.visibility_timeout = visibility_timeout
        self.max_attempts = max_attempts
        self.backoff = backoff
        self._client = client
        self._task_type = task_type
        self._capabilities = capabilities
        self._transport: AsyncTransport = (worker or client).transport
        self._name = name
        self._heart: Heart | None = None

    async def __aenter__(self) -> "AsyncPullQueue":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave; what is held goes back free of charge. Where that cannot be told, it comes back by itself."""
        heart, self._heart = self._heart, None
        if heart is None:
            return
        heart.stop()
        with contextlib.suppress(TideqError):
            await self._transport.ask(calls.leave(heart.worker_id), within_seconds=LEAVE_SECONDS)

    @property
    def cancelled(self) -> frozenset[str]:
        """Tasks that were called off while they were held here; told with a heartbeat."""
        return self._heart.cancelled if self._heart else frozenset()

    async def enqueue(self, tasks: Iterable[NewTask | Mapping[str, Any]]) -> tuple[Submitted, ...]:
        """Hand in many: parameters alone, or a `NewTask` with an id of your own. One whose id is known is ignored.

        All or none for each 1 000 of them, and no further: where a later thousand fails, the error's `submitted` says
        what stands.
        """
        return await self._client.submit_many(map(self._new, tasks))

    async def dequeue(
        self, size: int | None = None, *, visibility_timeout: float | None = None, wait_seconds: float = 0
    ) -> tuple[PulledTask, ...]:
        """Take up to `size` tasks, 1 000 at most, waiting up to 30 s for the first. They are executing from now on."""
        heart, tasks = await self._poll(self._size(size), wait_seconds)
        return await self._start(heart, tasks, visibility_timeout)

    async def retry(
        self, size: int | None = None, visibility_timeout: float | None = None, max_attempts: int | None = None
    ) -> tuple[PulledTask, ...]:
        """Take up to `size` tasks that were tried before and may be tried again now. They are executing from now on.

        They failed and their delay is over, took longer than their time, or lost their worker. One that was tried
        `max_attempts` times is discarded instead; none is tried more often than its own `max_retries` allow.

        `dequeue` gives them out too, with all others: a task that is tried again keeps its age, so it is among the
        first of its priority. This looks from the front for as long as tasks come, at most 1 000 beyond `size`, and
        hands back what it does not give out, also where a call fails.
        """
        wanted, most = self._size(size), self.max_attempts if max_attempts is None else max_attempts

        def is_wanted(task: PulledTask) -> bool:
            return task.tries > 0 and (most is None or task.tries < most)

        heart, taken = await self._look(wanted, is_wanted)
        chosen = list(filter(is_wanted, taken))
        spent = [task for task in taken if task.tries and not is_wanted(task)]
        await self._hand_back(heart, [*chosen[wanted:], *(task for task in taken if not task.tries)])
        try:
            started = [task.task_id for task in await self._start(heart, spent, None)]
            await self.mark_as_discarded(started, f"tried {most} times", code="MAX_ATTEMPTS")
        except TideqError:
            await self._hand_back(heart, [*chosen[:wanted], *spent])
            raise
        return await self._start(heart, chosen[:wanted], visibility_timeout)

    async def replay(self, size: int | None = None) -> tuple[Retried, ...]:
        """Put up to `size` tasks that failed for good or were given up back into the queue, the newest first."""
        replayed: list[Retried] = []
        async for task in self._client.list(status=["failed", "dead_letter"], task_type=self._task_type):
            if len(replayed) == self._size(size):
                break
            try:
                replayed.append(await self._client.retry(task.task_id))
            except Conflict:
                # The list is a little behind: somebody was quicker.
                continue
        return tuple(replayed)

    async def mark_as_complete(self, task_id: str | Ids, result: Any = None) -> None:
        """One task or many; a mapping of ids gives each its result, else all have the same.

        Raises Conflict where the task is no longer yours; its result is not taken then. Of many the others are marked
        all the same, and NotAllMarked names those that are not.
        """
        if isinstance(task_id, Mapping):
            await self._settle(task_id, lambda task: calls.completed(task, task_id[task.task_id]))
        else:
            await self._settle(task_id, lambda task: calls.completed(task, result))

    @overload
    async def mark_as_retry(self, task_id: str, error: str, *, code: str = "", details: Any = None) -> str: ...
    @overload
    async def mark_as_retry(
        self, task_id: Ids, error: str, *, code: str = "", details: Any = None
    ) -> tuple[str, ...]: ...
    async def mark_as_retry(
        self, task_id: str | Ids, error: str, *, code: str = "", details: Any = None
    ) -> str | tuple[str, ...]:
        """They failed and shall be tried again, while retries are left; where each went: `queued` or `dead_letter`."""
        told = {"message": error, "code": code, "retriable": True, "details": details}
        went = await self._settle(task_id, lambda task: calls.failed(task, told))
        return went[0] if isinstance(task_id, str) else went

    async def mark_as_failed(self, task_id: str | Ids, error: str, *, code: str = "", details: Any = None) -> None:
        """They failed, and trying again cannot help."""
        told = {"message": error, "code": code, "retriable": False, "details": details}
        await self._settle(task_id, lambda task: calls.failed(task, told))

    async def mark_as_discarded(
        self, task_id: str | Ids, error: str = "discarded", *, code: str = "", details: Any = None
    ) -> None:
        """Nobody shall try them again: they become dead letters at once, to be looked at and perhaps sent back."""
        told = {"message": error, "code": code, "retriable": False, "details": details}
        await self._settle(task_id, lambda task: calls.discarded(task, told))

    @overload
    async def mark_as_cancelled(self, task_id: str) -> Cancelled: ...
    @overload
    async def mark_as_cancelled(self, task_id: Ids) -> tuple[Cancelled, ...]: ...
    async def mark_as_cancelled(self, task_id: str | Ids) -> Cancelled | tuple[Cancelled, ...]:
        """Call tasks off, held or waiting. The service takes them one by one."""
        if not isinstance(task_id, str):
            marks = Marks[Cancelled]()
            for each in task_id:
                with marks.of(each):
                    marks.note(each, await self.mark_as_cancelled(each))
            return marks.all()
        cancelled = await self._client.cancel(task_id)
        if self._heart is not None:
            self._heart.let_go(task_id)
        return cancelled

    @overload
    async def mark_as_resume(self, task_id: str) -> Retried: ...
    @overload
    async def mark_as_resume(self, task_id: Ids) -> tuple[Retried, ...]: ...
    async def mark_as_resume(self, task_id: str | Ids) -> Retried | tuple[Retried, ...]:
        """Put tasks that failed, were given up or were called off back into the queue. One by one, as above."""
        if isinstance(task_id, str):
            return await self._client.retry(task_id)
        marks = Marks[Retried]()
        for each in task_id:
            with marks.of(each):
                marks.note(each, await self._client.retry(each))
        return marks.all()

    def _size(self, size: int | None) -> int:
        return self.batch_size if size is None else size

    def _new(self, task: NewTask | Mapping[str, Any]) -> NewTask:
        """With the queue's own defaults, where the task says nothing."""
        new = task if isinstance(task, NewTask) else NewTask(self._task_type, task)
        if self.max_attempts is not None and new.max_retries is None:
            new = msgspec.structs.replace(new, max_retries=self.max_attempts - 1)
        if self.backoff is not None and new.backoff is None:
            new = msgspec.structs.replace(new, backoff=self.backoff)
        return new

    async def _poll(self, count: int, wait_seconds: float) -> tuple[Heart, tuple[PulledTask, ...]]:
        heart = await self._registered()
        try:
            polled = await self._transport.ask(calls.poll(heart.worker_id, count, wait_seconds))
        except UnknownWorker:
            heart.is_known = False
            heart = await self._registered()
            polled = await self._transport.ask(calls.poll(heart.worker_id, count, wait_seconds))
        return heart, polled.tasks

    async def _look(self, wanted: int, is_wanted: Callable[[PulledTask], bool]) -> tuple[Heart, tuple[PulledTask, ...]]:
        """Tasks from the front until so many are wanted or no more come. Each look is as long as those before it."""
        heart, taken = await self._poll(wanted, 0)
        tasks, most = taken, wanted + calls.MAX_POLL
        try:
            while tasks and (missing := wanted - sum(map(is_wanted, taken))) > 0 and len(taken) < most:
                heart, tasks = await self._poll(min(max(missing, len(taken)), most - len(taken)), 0)
                taken += tasks
        except TideqError:
            await self._hand_back(heart, taken)
            raise
        return heart, taken

    async def _registered(self) -> Heart:
        """Registers with the first task wanted, and again when the service has given this worker up."""
        if self._heart is not None and not self._heart.is_known:
            self._heart.stop()
            self._heart = None
        if self._heart is None:
            registered = await self._transport.ask(calls.register(self._name, [self._task_type], self._capabilities))
            self._heart = Heart(self._transport.connection, registered)
        return self._heart

    async def _start(
        self, heart: Heart, tasks: Sequence[PulledTask], visibility_timeout: float | None
    ) -> tuple[PulledTask, ...]:
        seconds = self.visibility_timeout if visibility_timeout is None else visibility_timeout
        try:
            started = [await self._start_one(heart, task, seconds) for task in tasks]
        except TideqError:
            await self._hand_back(heart, tasks)
            raise
        return tuple(task for task in started if task is not None)

    async def _start_one(self, heart: Heart, task: PulledTask, visibility_timeout: float | None) -> PulledTask | None:
        """None for a task that was called off, or had lapsed, in between."""
        try:
            told = await self._transport.ask(calls.start(heart.worker_id, task))
            if visibility_timeout is not None and visibility_timeout > task.timeout_seconds:
                told = await self._transport.ask(
                    calls.extend(heart.worker_id, task.task_id, task.lease, visibility_timeout)
                )
        except Conflict:
            return None
        heart.hold(task, math.inf if visibility_timeout is None else visibility_timeout)
        return msgspec.structs.replace(task, visible_at=told.visible_at or task.visible_at)

    async def _hand_back(self, heart: Heart, tasks: Sequence[PulledTask]) -> None:
        """Nobody was told of them. Where even this fails, their deadlines bring them back."""
        for task in tasks:
            heart.let_go(task.task_id)
        with contextlib.suppress(TideqError):
            for first in range(0, len(tasks), calls.MAX_POLL):
                await self._transport.ask(calls.release(heart.worker_id, tasks[first : first + calls.MAX_POLL]))

    async def _settle(self, task_id: str | Ids, ending: Callable[[PulledTask], bytes]) -> tuple[str, ...]:
        """Where each task went. One that is refused is not ours any more; otherwise it can be said again."""
        if isinstance(task_id, str):
            return (await self._settle_one(task_id, ending),)
        return await self._settle_many(tuple(task_id), ending)

    async def _settle_one(self, task_id: str, ending: Callable[[PulledTask], bytes]) -> str:
        heart, task = self._held(task_id)
        try:
            told = await self._transport.ask(calls.tell(heart.worker_id, ending(task)))
        except (Conflict, NotFound):
            heart.let_go(task_id)
            raise
        heart.let_go(task_id)
        return told.status or ""

    async def _settle_many(self, task_ids: Sequence[str], ending: Callable[[PulledTask], bytes]) -> tuple[str, ...]:
        marks, held = Marks[str](), list[PulledTask]()
        for task_id in dict.fromkeys(task_ids):
            with marks.of(task_id):
                held.append(self._held(task_id)[1])
        for batch in cut(map(ending, held)):
            for outcome in await self._tell_many(batch, held[batch.first : batch.first + len(batch.bodies)]):
                if outcome.ok:
                    marks.note(outcome.task_id, outcome.status)
                else:
                    marks.refuse(outcome.task_id, refused_by(outcome.problem))
        return marks.all()

    async def _tell_many(self, endings: Batch, tasks: Sequence[PulledTask]) -> tuple[Outcome, ...]:
        heart, _ = self._held(tasks[0].task_id)
        try:
            outcomes = await self._transport.ask(calls.tell_many(heart.worker_id, endings))
        except UnknownWorker as error:
            outcomes = tuple(Outcome(task_id=task.task_id, ok=False, problem=error.problem) for task in tasks)
        for task in tasks:
            heart.let_go(task.task_id)
        return outcomes

    def _held(self, task_id: str) -> tuple[Heart, PulledTask]:
        if self._heart is None:
            raise NotHeld(f"task {task_id} was not taken by this queue")
        return self._heart, self._heart.held(task_id)
