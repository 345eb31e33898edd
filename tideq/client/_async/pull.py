"""Takes tasks from the queue without a worker runtime, and reports their results later."""

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
from tideq.client.error_mapping import refused_by
from tideq.client.errors import Conflict, NotFound, NotHeld, TideqError, UnknownWorker
from tideq.client.held_tasks import HeldTasks
from tideq.client.models.pulled import Marks, PulledTask, ReportOutcome
from tideq.client.models.tasks import Backoff, Cancelled, NewTask, Retried, Submitted
from tideq.client.options import strict

DEFAULT_SIZE = 5
DEREGISTER_SECONDS = 5.0

Ids = list[str] | tuple[str, ...] | AbstractSet[str] | Mapping[str, Any]
"""Ids of many tasks. A single str is one task."""


@strict
class AsyncPullQueue:
    """The tasks of one type, for code without a worker runtime.

    A dequeued task is yours for `visibility_timeout` seconds, by default its own timeout. If it has not been marked by
    then it returns to the queue, which costs a retry. A thread sends heartbeats; if this process dies, its tasks return
    when the heartbeat times out. `aclose` releases the tasks still held at no cost.

    `max_attempts` and `backoff` are defaults for tasks enqueued here, `visibility_timeout` and `batch_size` for tasks
    dequeued here.

    Taking tasks needs a worker's key, enqueueing a producer's key; an admin's key can do both. With one key of each
    kind, pass a client with the worker's key as `worker`.

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
            raise ValueError(f"max_attempts={max_attempts}: it must be at least 1")
        self.batch_size = batch_size
        self.visibility_timeout = visibility_timeout
        self.max_attempts = max_attempts
        self.backoff = backoff
        self._client = client
        self._task_type = task_type
        self._capabilities = capabilities
        self._transport: AsyncTransport = (worker or client).transport
        self._name = name
        self._held_tasks: HeldTasks | None = None

    async def __aenter__(self) -> "AsyncPullQueue":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Deregisters, which releases held tasks at no cost; without a connection they return by timeout."""
        held_tasks, self._held_tasks = self._held_tasks, None
        if held_tasks is None:
            return
        held_tasks.stop()
        with contextlib.suppress(TideqError):
            await self._transport.request(calls.deregister(held_tasks.worker_id), within_seconds=DEREGISTER_SECONDS)

    @property
    def cancelled(self) -> frozenset[str]:
        """Ids of held tasks that were cancelled, as of the last heartbeat."""
        return self._held_tasks.cancelled if self._held_tasks else frozenset()

    async def enqueue(self, tasks: Iterable[NewTask | Mapping[str, Any]]) -> tuple[Submitted, ...]:
        """Submits many tasks: parameters alone, or a `NewTask`. A task whose id exists already is ignored.

        All or none for each 1 000 tasks: where a later thousand fails, `submitted` of the error has the earlier ones.
        """
        return await self._client.submit_many(map(self._new, tasks))

    async def dequeue(
        self, size: int | None = None, *, visibility_timeout: float | None = None, wait_seconds: float = 0
    ) -> tuple[PulledTask, ...]:
        """Takes and starts up to `size` tasks, at most 1 000; waits up to 30 s for the first."""
        held_tasks, tasks = await self._poll(self._size(size), wait_seconds)
        return await self._start(held_tasks, tasks, visibility_timeout)

    async def retry(
        self, size: int | None = None, visibility_timeout: float | None = None, max_attempts: int | None = None
    ) -> tuple[PulledTask, ...]:
        """Takes and starts up to `size` tasks that were tried before and are ready again.

        Such tasks failed and their backoff is over, timed out, or lost their worker. A task that was tried
        `max_attempts` times is discarded instead; `max_retries` of a task still holds.

        `dequeue` returns such tasks too: a retried task keeps its rank, so it is among the first of its priority. This
        method claims from the head of the queue while tasks come, at most 1 000 beyond `size`, and releases tasks that
        it does not return, also if a call fails.
        """
        wanted, most = self._size(size), self.max_attempts if max_attempts is None else max_attempts

        def is_wanted(task: PulledTask) -> bool:
            return task.tries > 0 and (most is None or task.tries < most)

        held_tasks, taken = await self._poll_until(wanted, is_wanted)
        chosen = list(filter(is_wanted, taken))
        spent = [task for task in taken if task.tries and not is_wanted(task)]
        await self._release(held_tasks, [*chosen[wanted:], *(task for task in taken if not task.tries)])
        try:
            started = [task.task_id for task in await self._start(held_tasks, spent, None)]
            await self.mark_as_discarded(started, f"tried {most} times", code="MAX_ATTEMPTS")
        except TideqError:
            await self._release(held_tasks, [*chosen[:wanted], *spent])
            raise
        return await self._start(held_tasks, chosen[:wanted], visibility_timeout)

    async def replay(self, size: int | None = None) -> tuple[Retried, ...]:
        """Requeues up to `size` failed or dead tasks, the newest first."""
        replayed: list[Retried] = []
        async for task in self._client.list(status=["failed", "dead_letter"], task_type=self._task_type):
            if len(replayed) == self._size(size):
                break
            try:
                replayed.append(await self._client.retry(task.task_id))
            except Conflict:
                # The list lags a little: the task was retried meanwhile.
                continue
        return tuple(replayed)

    async def mark_as_complete(self, task_id: str | Ids, result: Any = None) -> None:
        """Completes one task or many; a mapping gives each id its result, otherwise all have the same.

        Raises Conflict where the task is no longer yours; its result is refused. Of many tasks the others are still
        marked, and NotAllMarked has the refused ones.
        """
        if isinstance(task_id, Mapping):
            await self._report(task_id, lambda task: calls.completed(task, task_id[task.task_id]))
        else:
            await self._report(task_id, lambda task: calls.completed(task, result))

    @overload
    async def mark_as_retry(self, task_id: str, error: str, *, code: str = "", details: Any = None) -> str: ...
    @overload
    async def mark_as_retry(
        self, task_id: Ids, error: str, *, code: str = "", details: Any = None
    ) -> tuple[str, ...]: ...
    async def mark_as_retry(
        self, task_id: str | Ids, error: str, *, code: str = "", details: Any = None
    ) -> str | tuple[str, ...]:
        """Fails tasks with a retry, if retries are left. Returns the new states: `queued` or `dead_letter`."""
        error_document = {"message": error, "code": code, "retriable": True, "details": details}
        states = await self._report(task_id, lambda task: calls.failed(task, error_document))
        return states[0] if isinstance(task_id, str) else states

    async def mark_as_failed(self, task_id: str | Ids, error: str, *, code: str = "", details: Any = None) -> None:
        """Fails tasks without a retry."""
        error_document = {"message": error, "code": code, "retriable": False, "details": details}
        await self._report(task_id, lambda task: calls.failed(task, error_document))

    async def mark_as_discarded(
        self, task_id: str | Ids, error: str = "discarded", *, code: str = "", details: Any = None
    ) -> None:
        """Makes tasks dead letters at once; an operator may replay them."""
        error_document = {"message": error, "code": code, "retriable": False, "details": details}
        await self._report(task_id, lambda task: calls.discarded(task, error_document))

    @overload
    async def mark_as_cancelled(self, task_id: str) -> Cancelled: ...
    @overload
    async def mark_as_cancelled(self, task_id: Ids) -> tuple[Cancelled, ...]: ...
    async def mark_as_cancelled(self, task_id: str | Ids) -> Cancelled | tuple[Cancelled, ...]:
        """Cancels tasks, held or waiting. One request for each task."""
        if not isinstance(task_id, str):
            marks = Marks[Cancelled]()
            for each in task_id:
                with marks.collecting(each):
                    marks.note(each, await self.mark_as_cancelled(each))
            return marks.all()
        cancelled = await self._client.cancel(task_id)
        if self._held_tasks is not None:
            self._held_tasks.remove(task_id)
        return cancelled

    @overload
    async def mark_as_resume(self, task_id: str) -> Retried: ...
    @overload
    async def mark_as_resume(self, task_id: Ids) -> tuple[Retried, ...]: ...
    async def mark_as_resume(self, task_id: str | Ids) -> Retried | tuple[Retried, ...]:
        """Requeues failed, dead or cancelled tasks. One request for each task."""
        if isinstance(task_id, str):
            return await self._client.retry(task_id)
        marks = Marks[Retried]()
        for each in task_id:
            with marks.collecting(each):
                marks.note(each, await self._client.retry(each))
        return marks.all()

    def _size(self, size: int | None) -> int:
        return self.batch_size if size is None else size

    def _new(self, task: NewTask | Mapping[str, Any]) -> NewTask:
        new = task if isinstance(task, NewTask) else NewTask(self._task_type, task)
        if self.max_attempts is not None and new.max_retries is None:
            new = msgspec.structs.replace(new, max_retries=self.max_attempts - 1)
        if self.backoff is not None and new.backoff is None:
            new = msgspec.structs.replace(new, backoff=self.backoff)
        return new

    async def _poll(self, count: int, wait_seconds: float) -> tuple[HeldTasks, tuple[PulledTask, ...]]:
        held_tasks = await self._registered()
        try:
            polled = await self._transport.request(calls.poll(held_tasks.worker_id, count, wait_seconds))
        except UnknownWorker:
            held_tasks.is_registered = False
            held_tasks = await self._registered()
            polled = await self._transport.request(calls.poll(held_tasks.worker_id, count, wait_seconds))
        return held_tasks, polled.tasks

    async def _poll_until(
        self, wanted: int, is_wanted: Callable[[PulledTask], bool]
    ) -> tuple[HeldTasks, tuple[PulledTask, ...]]:
        """Claims tasks until enough of them are wanted or no more come. Each poll is as large as all earlier ones."""
        held_tasks, taken = await self._poll(wanted, 0)
        tasks, most = taken, wanted + calls.MAX_POLL
        try:
            while tasks and (missing := wanted - sum(map(is_wanted, taken))) > 0 and len(taken) < most:
                held_tasks, tasks = await self._poll(min(max(missing, len(taken)), most - len(taken)), 0)
                taken += tasks
        except TideqError:
            await self._release(held_tasks, taken)
            raise
        return held_tasks, taken

    async def _registered(self) -> HeldTasks:
        """Registers with the first poll, and again when the service has dropped this worker."""
        if self._held_tasks is not None and not self._held_tasks.is_registered:
            self._held_tasks.stop()
            self._held_tasks = None
        if self._held_tasks is None:
            registered = await self._transport.request(
                calls.register(self._name, [self._task_type], self._capabilities)
            )
            self._held_tasks = HeldTasks(self._transport.connection, registered)
        return self._held_tasks

    async def _start(
        self, held_tasks: HeldTasks, tasks: Sequence[PulledTask], visibility_timeout: float | None
    ) -> tuple[PulledTask, ...]:
        seconds = self.visibility_timeout if visibility_timeout is None else visibility_timeout
        try:
            started = [await self._start_one(held_tasks, task, seconds) for task in tasks]
        except TideqError:
            await self._release(held_tasks, tasks)
            raise
        return tuple(task for task in started if task is not None)

    async def _start_one(
        self, held_tasks: HeldTasks, task: PulledTask, visibility_timeout: float | None
    ) -> PulledTask | None:
        """Returns None for a task that was cancelled or lapsed since the poll."""
        try:
            started = await self._transport.request(calls.start(held_tasks.worker_id, task))
            if visibility_timeout is not None and visibility_timeout > task.timeout_seconds:
                started = await self._transport.request(
                    calls.extend(held_tasks.worker_id, task.task_id, task.lease, visibility_timeout)
                )
        except Conflict:
            return None
        held_tasks.add(task, math.inf if visibility_timeout is None else visibility_timeout)
        return msgspec.structs.replace(task, visible_at=started.visible_at or task.visible_at)

    async def _release(self, held_tasks: HeldTasks, tasks: Sequence[PulledTask]) -> None:
        """Releases tasks that the caller has not received. If that fails, they return at their deadline."""
        for task in tasks:
            held_tasks.remove(task.task_id)
        with contextlib.suppress(TideqError):
            for first in range(0, len(tasks), calls.MAX_POLL):
                await self._transport.request(
                    calls.release(held_tasks.worker_id, tasks[first : first + calls.MAX_POLL])
                )

    async def _report(self, task_id: str | Ids, report_of: Callable[[PulledTask], bytes]) -> tuple[str, ...]:
        """Returns the new states. A refused task is no longer held; after any other error the call can be repeated."""
        if isinstance(task_id, str):
            return (await self._report_one(task_id, report_of),)
        return await self._report_held(tuple(task_id), report_of)

    async def _report_one(self, task_id: str, report_of: Callable[[PulledTask], bytes]) -> str:
        held_tasks, task = self._held(task_id)
        try:
            acknowledged = await self._transport.request(calls.report(held_tasks.worker_id, report_of(task)))
        except (Conflict, NotFound):
            held_tasks.remove(task_id)
            raise
        held_tasks.remove(task_id)
        return acknowledged.status or ""

    async def _report_held(self, task_ids: Sequence[str], report_of: Callable[[PulledTask], bytes]) -> tuple[str, ...]:
        marks, held = Marks[str](), list[PulledTask]()
        for task_id in dict.fromkeys(task_ids):
            with marks.collecting(task_id):
                held.append(self._held(task_id)[1])
        for batch in cut(map(report_of, held)):
            for outcome in await self._report_many(batch, held[batch.first : batch.first + len(batch.bodies)]):
                if outcome.ok:
                    marks.note(outcome.task_id, outcome.status)
                else:
                    marks.refuse(outcome.task_id, refused_by(outcome.problem))
        return marks.all()

    async def _report_many(self, reports: Batch, tasks: Sequence[PulledTask]) -> tuple[ReportOutcome, ...]:
        held_tasks, _ = self._held(tasks[0].task_id)
        try:
            outcomes = await self._transport.request(calls.report_many(held_tasks.worker_id, reports))
        except UnknownWorker as error:
            outcomes = tuple(ReportOutcome(task_id=task.task_id, ok=False, problem=error.problem) for task in tasks)
        for task in tasks:
            held_tasks.remove(task.task_id)
        return outcomes

    def _held(self, task_id: str) -> tuple[HeldTasks, PulledTask]:
        if self._held_tasks is None:
            raise NotHeld(f"task {task_id} was not taken by this queue")
        return self._held_tasks, self._held_tasks.get(task_id)
