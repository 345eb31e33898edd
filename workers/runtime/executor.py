"""Runs handlers on the loop, in threads or in child processes, and reports each end to the consumer.

Threads take tasks from one queue and return results in bursts: waking the loop once for many results costs a tenth of
what one future for each task costs.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence

import msgspec

from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import code_in, error_document, status_after
from tideq.workers.runtime.handler_spans import HandlerTracer, carrier, mark_failed
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.process_pool import ChildEnded, PoolProcess, ProcessPool
from tideq.workers.runtime.report_buffer import ReportBuffer, Result
from tideq.workers.runtime.results import encode_result
from tideq.workers.runtime.service_api import AssignedTask


class Attempt:
    """One attempt at one task."""

    def __init__(self, task: AssignedTask, handler: Handler, context: TaskContext, report_buffer: ReportBuffer) -> None:
        self.task = task
        self.handler = handler
        self.context = context
        self.report_buffer = report_buffer
        self.job: asyncio.Task[None] | None = None
        self.has_started = False
        self.cancel_count = 0
        """Number of cancelled attempts at this task that the service has reported so far."""
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._child: PoolProcess | None = None

    def stop(self) -> None:
        """Cancels a job, kills a child process. A thread cannot be stopped: its handler must check the context."""
        self.context.cancel()
        # A job cancelled before its first step never reports its end; that step checks the context instead.
        if self.job is not None and self.has_started:
            self.job.cancel()
        with self._lock:
            if self._child is not None:
                self._child.kill()

    @contextlib.contextmanager
    def using(self, child: PoolProcess) -> Generator[None]:
        """Inside, `stop` kills the child; afterwards the child may run another attempt."""
        with self._lock:
            self.context.check_cancelled()
            self._child = child
        try:
            yield
        finally:
            with self._lock:
                self._child = None

    def succeeded(self, result: bytes) -> Result:
        return self._result("completed", result=msgspec.Raw(result))

    def failed(self, error: BaseException) -> Result:
        return self.ended(status_after(error), error_document(error))

    def ended(self, status: str, document: bytes) -> Result:
        """`document` is the result, or the error document that a child process returned."""
        return self.succeeded(document) if status == "completed" else self._result(status, error=msgspec.Raw(document))

    def _result(self, status: str, **content: msgspec.Raw) -> Result:
        return Result(
            task_id=self.task.task_id,
            lease=self.task.lease,
            status=status,
            execution_duration_seconds=round(time.monotonic() - self._began, 6),
            **content,
        )


Done = Callable[[Sequence[tuple[Attempt, Result]]], None]


class Executor:
    """`on_done` is called on the loop, with all attempts that ended since the last call."""

    def __init__(
        self, thread_count: int, modules: Sequence[str], on_done: Done, tracer: HandlerTracer | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_count = thread_count
        self._children = ProcessPool(modules)
        self._on_done = on_done
        self._tracer = tracer or HandlerTracer()
        self._waiting: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._ended: deque[tuple[Attempt, Result]] = deque()
        self._is_scheduled = False
        self.on_loop_count = 0
        self._threads: list[threading.Thread] = []

    def begin(self, attempt: Attempt) -> None:
        if attempt.handler.mode == "loop":
            self.on_loop_count += 1
            attempt.job = asyncio.create_task(self._on_loop(attempt))
        else:
            self._ensure_thread()
            self._waiting.put(attempt)

    def end(self) -> None:
        """Threads are daemons: a handler that hangs does not keep the process alive."""
        for _ in self._threads:
            self._waiting.put(None)
        self._children.end()

    def _ensure_thread(self) -> None:
        if len(self._threads) < self._thread_count:
            thread = threading.Thread(target=self._work, name=f"tideq-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (attempt := self._waiting.get()) is not None:
            self._add_ended(attempt, contextvars.Context().run(self._in_thread, attempt))

    def _in_thread(self, attempt: Attempt) -> Result:
        try:
            with self._tracer.processing(attempt.task, attempt.report_buffer.worker_id, attempt.context):
                if attempt.handler.mode == "process":
                    return self._in_child(attempt)
                arguments = attempt.handler.arguments(bytes(attempt.task.parameters), attempt.context)
                return attempt.succeeded(encode_result(attempt.handler.function(**arguments)))
        except BaseException as error:
            return attempt.failed(error)

    def _in_child(self, attempt: Attempt) -> Result:
        try:
            with self._children.borrowed() as child, attempt.using(child):
                status, document = child.run(attempt.task.task_type, bytes(attempt.task.parameters), carrier())
        except ChildEnded:
            attempt.context.check_cancelled()
            raise
        if status != "completed" and not attempt.context.is_cancelled:
            mark_failed(code_in(document))
        return attempt.ended(status, document)

    async def _on_loop(self, attempt: Attempt) -> None:
        attempt.has_started = True
        try:
            attempt.context.check_cancelled()
            with self._tracer.processing(attempt.task, attempt.report_buffer.worker_id, attempt.context):
                arguments = attempt.handler.arguments(bytes(attempt.task.parameters), attempt.context)
                result = attempt.succeeded(encode_result(await attempt.handler.function(**arguments)))
        except asyncio.CancelledError as error:
            result = attempt.failed(attempt.context.cancellation() if attempt.context.is_cancelled else error)
        except BaseException as error:
            # Also SystemExit: a handler that exits ends its task, not the worker.
            result = attempt.failed(error)
        self.on_loop_count -= 1
        self._add_ended(attempt, result)

    def _add_ended(self, attempt: Attempt, result: Result) -> None:
        self._ended.append((attempt, result))
        if not self._is_scheduled:
            self._is_scheduled = True
            # A thread may outlive the loop; its result is then dropped.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._report_ended)

    def _report_ended(self) -> None:
        """Resets the flag before reading, so that an attempt that ends meanwhile schedules another call."""
        self._is_scheduled = False
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        if ended:
            self._on_done(ended)
