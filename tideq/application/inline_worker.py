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
from tideq.client.held_tasks import HeldTasks
from tideq.client.models.pulled import PulledTask
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import error_document, status_after
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.registry import has_started
from tideq.workers.runtime.results import encode_result

MAX_BATCH = 1_000

log = logging.getLogger(__name__)


class InlineWorker:
    """A registered worker for the duration of the block; heartbeats come from their own thread."""

    def __init__(self, transport: Transport, handlers: Handlers, name: str) -> None:
        task_types = [handler.task_type for handler in handlers]
        if not task_types:
            raise ValueError("no handler is registered: decorate a function with @task, or call tq(…).set_worker(…)")
        has_started.set()
        self._transport = transport
        self._handlers = handlers
        self._held_tasks = HeldTasks(transport.connection, transport.request(calls.register(name, task_types, ())))

    def __enter__(self) -> "InlineWorker":
        return self

    def __exit__(self, *_: object) -> None:
        """Deregisters; tasks claimed and not finished return to the queue at no cost."""
        self._held_tasks.stop()
        with contextlib.suppress(TideqError):
            self._transport.request(calls.deregister(self._held_tasks.worker_id))

    def run(self, limit: int) -> Iterator[str]:
        """Runs until no task is ready; yields each task's id once it has ended or waits for a retry."""
        for _ in range(limit):
            tasks = self._transport.request(calls.poll(self._held_tasks.worker_id, 1, 0)).tasks
            if not tasks:
                return
            self._run(tasks[0])
            yield tasks[0].task_id

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None:
        self._transport.request(calls.progress(self._held_tasks.worker_id, task_id, lease, percent, message))

    def extend(self, task_id: str, lease: str, seconds: float) -> None:
        self._transport.request(calls.extend(self._held_tasks.worker_id, task_id, lease, seconds))

    def _run(self, task: PulledTask) -> None:
        handler = self._handlers.get(task.task_type)
        assert handler is not None
        try:
            self._transport.request(calls.start(self._held_tasks.worker_id, task))
            context = TaskContext(
                task.task_id, task.task_type, task.attempt, task.lease, task.timeout_seconds, self, task.traceparent
            )
            self._transport.request(calls.report(self._held_tasks.worker_id, _report_of(handler, task, context)))
        except (Conflict, NotFound) as error:
            log.warning("lease of task %s lost: %s", task.task_id, error)


def _report_of(handler: Handler, task: PulledTask, context: TaskContext) -> bytes:
    try:
        value = handler.function(**handler.arguments(bytes(task.raw_parameters), context))
        return calls.completed(
            task, msgspec.Raw(encode_result(_awaited(value) if inspect.iscoroutine(value) else value))
        )
    except Exception as error:
        report = calls.discarded if status_after(error) == "discarded" else calls.failed
        return report(task, msgspec.Raw(error_document(error)))


def _awaited(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs on its own loop, in another thread where this thread has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
