"""Running handlers: on the loop, in threads, in child processes; and telling when each is done.

Threads take tasks from one queue and hand results back in bursts: waking the loop once for many costs a tenth of what a
future a task does.
"""

import asyncio
import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tideq.workers.runtime.children import Child, Children
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import Fail, error_document
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.protocol import GivenTask
from tideq.workers.runtime.reporter import Result

_encode = msgspec.json.Encoder().encode


def encode_result(value: Any) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise Fail(f"the result cannot be written as JSON: {error}", code="INVALID_RESULT") from error


@dataclass(eq=False)
class Run:
    """One attempt at one task."""

    task: GivenTask
    handler: Handler
    context: TaskContext
    began: float = field(default_factory=time.monotonic)
    child: Child | None = None
    job: "asyncio.Task[None] | None" = None

    def stop(self) -> None:
        """As far as its kind allows: a thread must look at its context by itself."""
        self.context.cancel()
        if self.job is not None:
            self.job.cancel()
        if self.child is not None:
            self.child.kill()

    def succeeded(self, result: bytes) -> Result:
        return self._result("completed", result=msgspec.Raw(result))

    def failed(self, error: bytes) -> Result:
        return self._result("failed", error=msgspec.Raw(error))

    def _result(self, status: str, **content: msgspec.Raw) -> Result:
        return Result(
            task_id=self.task.task_id,
            lease=self.task.lease,
            status=status,
            execution_duration_seconds=round(time.monotonic() - self.began, 6),
            **content,
        )


Done = Callable[[Sequence[tuple[Run, Result]]], None]


class Execution:
    """`on_done` is called on the loop, with everything that ended since the last time."""

    def __init__(self, thread_count: int, modules: Sequence[str], on_done: Done) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_count = thread_count
        self._children = Children(modules)
        self._on_done = on_done
        self._waiting: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._ended: deque[tuple[Run, Result]] = deque()
        self._is_called = False
        self._threads: list[threading.Thread] = []

    def begin(self, run: Run) -> None:
        if run.handler.mode == "loop":
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

    def _in_thread(self, run: Run) -> Result:
        try:
            if run.handler.mode == "process":
                return self._in_child(run)
            arguments = run.handler.arguments(bytes(run.task.parameters), run.context)
            return run.succeeded(encode_result(run.handler.function(**arguments)))
        except BaseException as error:
            return run.failed(error_document(error))

    def _in_child(self, run: Run) -> Result:
        run.child = self._children.borrow()
        try:
            is_success, document = run.child.run(run.task.task_type, bytes(run.task.parameters))
        finally:
            child, run.child = run.child, None
            self._children.give_back(child)
        return run.succeeded(document) if is_success else run.failed(document)

    async def _on_loop(self, run: Run) -> None:
        try:
            arguments = run.handler.arguments(bytes(run.task.parameters), run.context)
            result = run.succeeded(encode_result(await run.handler.function(**arguments)))
        except asyncio.CancelledError as error:
            result = run.failed(error_document(error))
        except Exception as error:
            result = run.failed(error_document(error))
        self._note(run, result)

    def _note(self, run: Run, result: Result) -> None:
        self._ended.append((run, result))
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        """The flag first: what ends from here on calls again."""
        self._is_called = False
        ended = [self._ended.popleft() for _ in range(len(self._ended))]
        if ended:
            self._on_done(ended)
