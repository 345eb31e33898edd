"""Child processes for handlers that compute: one task at a time each, killed when their task is called off."""

import importlib
import multiprocessing
import queue
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from tideq.workers.runtime.failures import Cancelled, error_document

SPAWN = multiprocessing.get_context("spawn")


class Child:
    """Imports the handlers once, then does task after task."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(theirs, list(modules)), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def run(self, task_type: str, parameters: bytes) -> tuple[bool, bytes]:
        """Whether it succeeded, and the result or error document. Blocks; the runtime calls it in a thread."""
        try:
            self._pipe.send((task_type, parameters))
            return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise Cancelled("the process that ran the task has ended", code="PROCESS_ENDED") from error

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


class Children:
    """As many as tasks may run at once; one that was killed is replaced when it is next needed."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def borrow(self) -> Child:
        while True:
            try:
                child = self._idle.get_nowait()
            except queue.Empty:
                return Child(self._modules)
            if child.is_alive:
                return child

    def give_back(self, child: Child) -> None:
        if child.is_alive:
            self._idle.put(child)

    def end(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().kill()


def _serve(pipe: "Connection[Any, Any]", modules: list[str]) -> None:
    """In the child. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in modules:
        importlib.import_module(module)
    while True:
        try:
            task_type, parameters = pipe.recv()
        except EOFError:
            return
        pipe.send(_run(task_type, parameters))


def _run(task_type: str, parameters: bytes) -> tuple[bool, bytes]:
    from tideq.workers.runtime.execution import encode_result
    from tideq.workers.runtime.registry import registered

    try:
        handler = registered.get(task_type)
        if handler is None:
            raise LookupError(f"no handler for {task_type} in a child process: is its module importable?")
        return True, encode_result(handler.function(**handler.arguments(parameters, None)))
    except Exception as error:
        return False, error_document(error)
