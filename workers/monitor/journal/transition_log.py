"""Writes a line for every transition: task, trace, worker, states and reason.

JSON, or readable text on a terminal. Names are escaped, and payloads, results and error messages are left out, so that
no task can break or forge a line.
"""

import contextlib
import functools
import json
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TextIO

from tideq.queue_core.states import Reason
from tideq.workers.monitor.journal.transition import ObservedTransition

MAX_WAITING = 1_000
"""Texts of up to 250 lines each; further ones are dropped and counted."""
CLOSE_SECONDS = 1.0
MAX_SHARED = 4_096


class TransitionLog:
    wants_origins = True

    def __init__(self, write: Callable[[str], None], *, readable: bool) -> None:
        self._write = write
        self._line = _readable if readable else _document

    def observe(self, transitions: Sequence[ObservedTransition]) -> None:
        self._write("".join(map(self._line, transitions)))


def _document(each: ObservedTransition) -> str:
    """Formats JSON by hand, for speed: only `_shared` holds text that needs escaping."""
    shared = _shared(*each.step_key, each.attempt, each.source, each.origin.client_id)
    return (
        f'{{"event": "transition", "task_id": "{each.task_id}", "trace_id": "{each.trace_id}", '
        f'"span_id": "{each.span_id}", {shared}, "retry_count": {each.retry_count}, '
        f'"age_seconds": {each.age_ms / 1000}, "level": "info", "timestamp": "{_instant(each.at_ms)}"}}\n'
    )


@functools.lru_cache(maxsize=MAX_SHARED)
def _shared(
    task_type: str, priority: str, state: bytes, reason: bytes, worker: bytes, attempt: int, source: str, client_id: str
) -> str:
    """Cached: thousands of tasks of a type take the same steps."""
    return (
        f'"task_type": {json.dumps(task_type)}, "priority": {json.dumps(priority)}, '
        f'"client_id": {json.dumps(client_id)}, "worker_id": {json.dumps(worker.decode())}, "attempt": {attempt}, '
        f'"from_state": "{source}", "to_state": "{state.decode()}", "reason": "{reason.decode() or Reason.SUBMITTED}"'
    )


def _readable(each: ObservedTransition) -> str:
    return (
        f"{_instant(each.at_ms)} {each.task_id} {each.source or '·':>11} → {each.state:<11} {each.reason:<17} "
        f"{_shown(each.task_type)} attempt={each.attempt} retries={each.retry_count} age={each.age_ms / 1000:.1f}s "
        f"client={_shown(each.origin.client_id) or '-'} worker={_shown(each.worker_id) or '-'} trace={each.trace_id}\n"
    )


def _shown(text: str) -> str:
    return text if text.isprintable() else ascii(text)[1:-1]


@functools.lru_cache(maxsize=10_000)
def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class LineWriter:
    """Writes lines in a thread of its own, so that a pipe whose reader has stopped does not stop the service.

    A context manager; leaving it writes the waiting texts for at most CLOSE_SECONDS.
    """

    def __init__(self, stream: TextIO) -> None:
        self.dropped_count = 0
        """Counts texts, not lines."""
        self._stream = stream
        self._waiting: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._thread = threading.Thread(target=self._work, name="tideq-lines", daemon=True)

    def __enter__(self) -> "LineWriter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)

    def write(self, text: str) -> None:
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            self.dropped_count += 1

    def _work(self) -> None:
        """Writes whole lines in one call, so that lines of other writers cannot split them."""
        while (text := self._waiting.get()) is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()
