"""A worker that runs tasks in the calling thread, one at a time: for batches on demand and for tests."""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from tideq.client._sync.transport import Transport
from tideq.client.calls import pulling as calls
from tideq.client.errors import Conflict, NotFound, TideqError
from tideq.client.heart import Heart
from tideq.client.models.pulled import PulledTask
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import error_document, status_after
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.registry import has_begun
from tideq.workers.runtime.results import encode_result

MAX_BATCH = 1_000

log = logging.getLogger(__name__)


class InlineWorker:
    """One of the fleet for as long as the block lasts; heartbeats come from a thread of their own."""

    def __init__(self, transport: Transport, handlers: Handlers, name: str) -> None:
        task_types = [handler.task_type for handler in handlers]
        if not task_types:
            raise ValueError("there is no handler to run: decorate a function with @task, or give tq(…) a worker")
        has_begun.set()
        self._transport = transport
        self._handlers = handlers
        self._heart = Heart(transport.connection, transport.ask(calls.register(name, task_types, ())))

    def __enter__(self) -> "InlineWorker":
        return self

    def __exit__(self, *_: object) -> None:
        """What was claimed and not done goes back free of charge."""
        self._heart.stop()
        with contextlib.suppress(TideqError):
            self._transport.ask(calls.leave(self._heart.worker_id))

    def run(self, limit: int) -> Iterator[str]:
        """Until nothing is ready; gives the ids, each as soon as its task has ended or waits again."""
        for _ in range(limit):
            tasks = self._transport.ask(calls.poll(self._heart.worker_id, 1, 0)).tasks
            if not tasks:
                return
            self._run(tasks[0])
            yield tasks[0].task_id

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None:
        self._transport.ask(calls.progress(self._heart.worker_id, task_id, lease, percent, message))

    def extend(self, task_id: str, lease: str, seconds: float) -> None:
        self._transport.ask(calls.extend(self._heart.worker_id, task_id, lease, seconds))

    def _run(self, task: PulledTask) -> None:
        handler = self._handlers.get(task.task_type)
        assert handler is not None
        try:
            self._transport.ask(calls.start(self._heart.worker_id, task))
            context = TaskContext(
                task.task_id, task.task_type, task.attempt, task.lease, task.timeout_seconds, self, task.traceparent
            )
            self._transport.ask(calls.tell(self._heart.worker_id, _ending(handler, task, context)))
        except (Conflict, NotFound) as error:
            log.warning("task %s is no longer ours: %s", task.task_id, error)


def _ending(handler: Handler, task: PulledTask, context: TaskContext) -> bytes:
    try:
        value = handler.function(**handler.arguments(bytes(task.raw_parameters), context))
        return calls.completed(
            task, msgspec.Raw(encode_result(_awaited(value) if inspect.iscoroutine(value) else value))
        )
    except Exception as error:
        tell = calls.discarded if status_after(error) == "discarded" else calls.failed
        return tell(task, msgspec.Raw(error_document(error)))


def _awaited(work: Coroutine[Any, Any, Any]) -> Any:
    """On a loop of its own, which cannot run inside another one's thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
