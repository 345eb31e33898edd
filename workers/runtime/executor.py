"""Running handlers: on the loop, in threads, in child processes; and telling when each is done.

Threads take tasks from one queue and hand results back in bursts: waking the loop once for many costs a tenth of what a
future a task does.
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

    def __init__(self, task: AssignedTask, handler: Handler, context: TaskContext, mailbox: ReportBuffer) -> None:
        self.task = task
        self.handler = handler
        self.context = context
        self.mailbox = mailbox
        self.job: asyncio.Task[None] | None = None
        self.has_begun = False
        self.cancel_count = 0
        """How many attempts at the task the service has called off, as far as this one has heard."""
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._child: PoolProcess | None = None

    def stop(self) -> None:
        """As far as its kind allows: a thread must look at its context by itself."""
        self.context.cancel()
        # Cancelled before its first step, a job never gets to say that it ended; it looks at its context first.
        if self.job is not None and self.has_begun:
            self.job.cancel()
        with self._lock:
            if self._child is not None:
                self._child.kill()

    @contextlib.contextmanager
    def using(self, child: PoolProcess) -> Generator[None]:
        """Inside, `stop` kills the child; afterwards it may be another's."""
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
        """A child process has only the document of its error to show."""
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
    """`on_done` is called on the loop, with everything that ended since the last time."""

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
        self._is_called = False
        self.on_loop_count = 0
        self._threads: list[threading.Thread] = []

    def begin(self, run: Attempt) -> None:
        if run.handler.mode == "loop":
            self.on_loop_count += 1
            run.job = asyncio.create_task(self._on_loop(run))
        else:
            self._need_thread()
            self._waiting.put(run)

    def end(self) -> None:
        """Threads are daemons: one that hangs in a handler keeps nothing alive."""
        for _ in self._threads:
            self._waiting.put(None)
        self._children.end()

    def _need_thread(self) -> None:
        if len(self._threads) < self._thread_count:
            thread = threading.Thread(target=self._work, name=f"tideq-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (run := self._waiting.get()) is not None:
            self._note(run, contextvars.Context().run(self._in_thread, run))

    def _in_thread(self, run: Attempt) -> Result:
        try:
            with self._tracer.processing(run.task, run.mailbox.worker_id, run.context):
                if run.handler.mode == "process":
                    return self._in_child(run)
                arguments = run.handler.arguments(bytes(run.task.parameters), run.context)
                return run.succeeded(encode_result(run.handler.function(**arguments)))
        except BaseException as error:
            return run.failed(error)

    def _in_child(self, run: Attempt) -> Result:
        try:
            with self._children.borrowed() as child, run.using(child):
                status, document = child.run(run.task.task_type, bytes(run.task.parameters), carrier())
        except ChildEnded:
            run.context.check_cancelled()
            raise
        if status != "completed" and not run.context.is_cancelled:
            mark_failed(code_in(document))
        return run.ended(status, document)

    async def _on_loop(self, run: Attempt) -> None:
        run.has_begun = True
        try:
            run.context.check_cancelled()
            with self._tracer.processing(run.task, run.mailbox.worker_id, run.context):
                arguments = run.handler.arguments(bytes(run.task.parameters), run.context)
                result = run.succeeded(encode_result(await run.handler.function(**arguments)))
        except asyncio.CancelledError as error:
            result = run.failed(run.context.cancellation() if run.context.is_cancelled else error)
        except BaseException as error:
            # Also what would end the loop: a handler that exits ends its task, not the worker.
            result = run.failed(error)
        self.on_loop_count -= 1
        self._note(run, result)

    def _note(self, run: Attempt, result: Result) -> None:
        self._ended.append((run, result))
        if not self._is_called:
            self._is_called = True
            # A thread may outlive the loop; then nobody waits for what it did.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        """The flag first: what ends from here on calls again."""
        self._is_called = False
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        if ended:
            self._on_done(ended)
