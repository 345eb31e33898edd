"""Driving the queue by hand: take tasks out, and say later what became of each."""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tideq.client._async.client import AsyncClient
from tideq.client._async.transport import AsyncTransport
from tideq.client.calls import pulling as calls
from tideq.client.calls.base import Call
from tideq.client.errors import Conflict, NotFound, NotHeld, TideqError, UnknownWorker
from tideq.client.heart import Heart
from tideq.client.models.pulled import Acknowledged, PulledTask
from tideq.client.models.tasks import Cancelled, NewTask, Retried, Submitted

DEFAULT_SIZE = 5
LEAVE_SECONDS = 5.0


class AsyncPullQueue:
    """The tasks of one type, for code that wants no worker runtime around it.

    A task that was dequeued is yours for `visibility_timeout` seconds, its own timeout by default. If nothing is said
    about it by then it goes back, at the cost of a retry; if this process dies, it comes back as soon as the service
    misses its heartbeats, which a thread sends meanwhile. On leaving, what is still held is handed back for free.

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
    ) -> None:
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
        """Hand in many: parameters alone, or a `NewTask` with an id of your own. One whose id is known is ignored."""
        new = (task if isinstance(task, NewTask) else NewTask(self._task_type, task) for task in tasks)
        return await self._client.submit_many(new)

    async def dequeue(
        self, size: int = DEFAULT_SIZE, *, visibility_timeout: float | None = None, wait_seconds: float = 0
    ) -> tuple[PulledTask, ...]:
        """Take up to `size` tasks, 1 000 at most, waiting up to 30 s for the first. They are executing from now on."""
        heart = await self._registered()
        try:
            polled = await self._transport.ask(calls.poll(heart.worker_id, size, wait_seconds))
        except UnknownWorker:
            heart.is_known = False
            heart = await self._registered()
            polled = await self._transport.ask(calls.poll(heart.worker_id, size, wait_seconds))
        return await self._start(heart, polled.tasks, visibility_timeout)

    async def retry(self, size: int = DEFAULT_SIZE) -> tuple[Retried, ...]:
        """Put up to `size` tasks that failed or were given up back into the queue, the newest first.

        What failed and has retries left comes back by itself when its delay is over.
        """
        retried: list[Retried] = []
        async for task in self._client.list(status=["failed", "dead_letter"], task_type=self._task_type):
            if len(retried) == size:
                break
            try:
                retried.append(await self._client.retry(task.task_id))
            except Conflict:
                # The list is a little behind: somebody was quicker.
                continue
        return tuple(retried)

    async def mark_as_complete(self, task_id: str, result: Any = None) -> None:
        """Raises Conflict where the task is no longer yours; its result is not taken then."""
        heart, task = self._held(task_id)
        await self._settle(heart, task, calls.complete(heart.worker_id, task, result))

    async def mark_as_retry(self, task_id: str, error: str, *, code: str = "", details: Any = None) -> str:
        """It failed and shall be tried again, while retries are left; where it went: `queued` or `dead_letter`."""
        heart, task = self._held(task_id)
        told = {"message": error, "code": code, "retriable": True, "details": details}
        return await self._settle(heart, task, calls.fail(heart.worker_id, task, told))

    async def mark_as_failed(self, task_id: str, error: str, *, code: str = "", details: Any = None) -> None:
        """It failed, and trying again cannot help."""
        heart, task = self._held(task_id)
        told = {"message": error, "code": code, "retriable": False, "details": details}
        await self._settle(heart, task, calls.fail(heart.worker_id, task, told))

    async def mark_as_discarded(self, task_id: str, error: str, *, code: str = "", details: Any = None) -> None:
        """Nobody shall try it again: it becomes a dead letter at once, to be looked at and perhaps sent back."""
        heart, task = self._held(task_id)
        told = {"message": error, "code": code, "retriable": False, "details": details}
        await self._settle(heart, task, calls.discard(heart.worker_id, task, told))

    async def mark_as_cancelled(self, task_id: str) -> Cancelled:
        """Call a task off, held or waiting."""
        cancelled = await self._client.cancel(task_id)
        if self._heart is not None:
            self._heart.let_go(task_id)
        return cancelled

    async def mark_as_resume(self, task_id: str) -> Retried:
        """Put a task that failed, was given up or was called off back into the queue."""
        return await self._client.retry(task_id)

    async def _registered(self) -> Heart:
        """Registers with the first task wanted, and again when the service has given this worker up."""
        if self._heart is not None and not self._heart.is_known:
            self._heart.stop()
            self._heart = None
        if self._heart is None:
            registered = await self._transport.ask(calls.register(self._name, self._task_type, self._capabilities))
            self._heart = Heart(self._transport.connection, registered)
        return self._heart

    async def _start(
        self, heart: Heart, tasks: Sequence[PulledTask], visibility_timeout: float | None
    ) -> tuple[PulledTask, ...]:
        try:
            started = [await self._start_one(heart, task, visibility_timeout) for task in tasks]
        except TideqError:
            await self._hand_back(heart, tasks)
            raise
        return tuple(task for task in started if task is not None)

    async def _start_one(self, heart: Heart, task: PulledTask, visibility_timeout: float | None) -> PulledTask | None:
        """None for a task that was called off, or had lapsed, in between."""
        try:
            told = await self._transport.ask(calls.start(heart.worker_id, task))
            if visibility_timeout is not None and visibility_timeout > task.timeout_seconds:
                told = await self._transport.ask(calls.extend(heart.worker_id, task, visibility_timeout))
        except Conflict:
            return None
        heart.hold(task, math.inf if visibility_timeout is None else visibility_timeout)
        return msgspec.structs.replace(task, visible_at=told.visible_at or task.visible_at)

    async def _hand_back(self, heart: Heart, tasks: Sequence[PulledTask]) -> None:
        """Nobody was told of them. Where even this fails, their deadlines bring them back."""
        for task in tasks:
            heart.let_go(task.task_id)
        with contextlib.suppress(TideqError):
            await self._transport.ask(calls.release(heart.worker_id, tasks))

    def _held(self, task_id: str) -> tuple[Heart, PulledTask]:
        if self._heart is None:
            raise NotHeld(f"task {task_id} was not taken by this queue")
        return self._heart, self._heart.held(task_id)

    async def _settle(self, heart: Heart, task: PulledTask, call: Call[Acknowledged]) -> str:
        """Where the task went. One that is refused is not ours any more; otherwise it can be said again."""
        try:
            told = await self._transport.ask(call)
        except (Conflict, NotFound):
            heart.let_go(task.task_id)
            raise
        heart.let_go(task.task_id)
        return told.status or ""
