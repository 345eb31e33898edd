"""Child processes for CPU-bound handlers: one task at a time each, killed when their task is cancelled."""

import contextlib
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Generator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from tideq.workers.runtime.failures import Retry, error_document, status_after
from tideq.workers.runtime.handler_spans import resumed
from tideq.workers.runtime.registry import has_started, registered
from tideq.workers.runtime.results import encode_result

EMPTY: Mapping[str, str] = {}
SPAWN = multiprocessing.get_context("spawn")


class ChildEnded(Retry):
    def __init__(self, exit_code: int | None) -> None:
        super().__init__(f"the process that ran the task ended, exit code {exit_code}", code="PROCESS_ENDED")


class PoolProcess:
    """Imports the handlers once, then runs task after task. One thread uses it; any thread may kill it."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.is_spent = False
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, list(modules)), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, task_type: str, parameters: bytes, trace: Mapping[str, str] = EMPTY) -> tuple[str, bytes]:
        """Returns the status and the result or error document; raises ChildEnded. Blocks."""
        try:
            self._pipe.send((task_type, parameters, dict(trace)))
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise ChildEnded(self._process.exitcode) from error

    def kill(self) -> None:
        """The reading thread closes the pipe: closed here, its file number could be reused while that thread reads."""
        self.is_spent = True
        self._process.kill()

    def close(self) -> None:
        self.kill()
        self._process.join()
        self._pipe.close()


class ProcessPool:
    """One process for each concurrent task; a killed process is replaced when the next task needs it."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._lock = threading.Lock()
        self._idle: list[PoolProcess] = []
        self._busy: set[PoolProcess] = set()
        self._is_ended = False

    @contextlib.contextmanager
    def borrowed(self) -> Generator[PoolProcess]:
        with self._lock:
            child = self._idle.pop() if self._idle else None
        child = child or PoolProcess(self._modules)
        with self._lock:
            self._busy.add(child)
        try:
            yield child
        finally:
            self._return(child)

    def end(self) -> None:
        with self._lock:
            self._is_ended = True
            for child in (*self._idle, *self._busy):
                child.kill()

    def _return(self, child: PoolProcess) -> None:
        with self._lock:
            self._busy.discard(child)
            if not child.is_spent and not self._is_ended:
                self._idle.append(child)
                return
        child.close()


def _serve(pipe: "Connection[Any, Any]", modules: list[str]) -> None:
    """Runs in the child. Ignores signals: the parent lets running tasks finish and kills the children."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    has_started.set()
    failure = _import(modules)
    while True:
        try:
            task_type, parameters, trace = pipe.recv()
        except EOFError:
            return
        pipe.send(("failed", failure) if failure else _run(task_type, parameters, trace))


def _end_with_parent() -> None:
    """Ends the child where the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _import(modules: list[str]) -> bytes | None:
    """Returns the error document of a failed import, or None."""
    try:
        for module in modules:
            importlib.import_module(module)
    except BaseException as error:
        return error_document(error)
    return None


def _run(task_type: str, parameters: bytes, trace: Mapping[str, str]) -> tuple[str, bytes]:
    try:
        handler = registered.get(task_type)
        if handler is None:
            raise LookupError(f"no handler for {task_type} in a child process: is its module importable?")
        with resumed(trace):
            return "completed", encode_result(handler.function(**handler.arguments(parameters, None)))
    except BaseException as error:
        return status_after(error), error_document(error)
