"""What a handler may ask and say about the task it runs. Safe to use from any thread."""

import functools
import threading
import time
from typing import Any, Protocol

import structlog

from tideq.queue_core.telemetry.trace_context import trace_id_of
from tideq.workers.runtime.failures import CancelledByService, plain

MAX_MESSAGE_CHARACTERS = 1_000
MAX_EXTENSION_SECONDS = 4e9

_making_events = threading.Lock()
"""An event costs as much as a whole no-op task otherwise does, so only who waits gets one."""


class TaskReporter(Protocol):
    """Where a context's words go."""

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None: ...
    def extend(self, task_id: str, lease: str, seconds: float) -> None: ...


class TaskContext:
    """Annotate an argument of a handler with it to be given one."""

    def __init__(
        self,
        task_id: str,
        task_type: str,
        attempt: int,
        lease: str,
        timeout_seconds: float,
        voice: TaskReporter,
        traceparent: str | None = None,
    ) -> None:
        self.task_id = task_id
        self.task_type = task_type
        self.attempt = attempt
        self.traceparent = traceparent
        """W3C Trace Context of this attempt, where the task belongs to a trace."""
        self._lease = lease
        self._voice = voice
        self.is_cancelled = False
        """Whether the task was called off, timed out or given to another worker: its result would be refused."""
        self._stop: threading.Event | None = None
        self._deadline = time.monotonic() + timeout_seconds

    @property
    def trace_id(self) -> str:
        """Of the trace that the task came with, or else its own."""
        return trace_id_of(self.task_id, self.traceparent)

    @functools.cached_property
    def log(self) -> Any:
        """Says with every line which task it is about."""
        logger = structlog.get_logger("tideq.task")
        about = {"task_type": self.task_type, "attempt": self.attempt, "trace_id": self.trace_id}
        return logger.bind(task_id=self.task_id, **about)

    @property
    def seconds_left(self) -> float:
        """Until the execution deadline, which only `extend` moves."""
        return max(self._deadline - time.monotonic(), 0.0)

    @property
    def overdue_seconds(self) -> float:
        return time.monotonic() - self._deadline

    def check_cancelled(self) -> None:
        """Raise if the task was cancelled: call it now and then in long work."""
        if self.is_cancelled:
            raise self.cancellation()

    def wait(self, seconds: float) -> bool:
        """Sleep, unless the task is cancelled; returns whether it was."""
        with _making_events:
            self._stop = self._stop or threading.Event()
        # Looked at after the event is there to be set: a cancellation in between is seen here.
        return self.is_cancelled or self._stop.wait(seconds)

    def progress(self, percent: float, message: str = "") -> None:
        """Tell how far the work has come, 0 to 100. Reports are sent together, the latest wins."""
        # Anything that is no number compares as false, and counts as nothing done.
        share = float(percent) if percent > 0 else 0.0
        self._voice.progress(self.task_id, self._lease, min(share, 100.0), plain(message)[:MAX_MESSAGE_CHARACTERS])

    def extend(self, seconds: float) -> None:
        """Ask for more time, from now on. Heartbeats never do this: a handler that hangs still times out."""
        if not 0 < seconds <= MAX_EXTENSION_SECONDS:
            raise ValueError(f"an extension of {seconds} seconds: it must be a positive time")
        self._deadline = max(self._deadline, time.monotonic() + seconds)
        self._voice.extend(self.task_id, self._lease, seconds)

    def cancel(self) -> None:
        """What the runtime does when the service says so, or the deadline has passed."""
        self.is_cancelled = True
        if self._stop is not None:
            self._stop.set()

    def cancellation(self) -> CancelledByService:
        """Told as the service itself would where it is the deadline that passed: the next attempt is given longer."""
        if self.overdue_seconds > 0:
            return CancelledByService("the execution deadline passed", code="TIMEOUT")
        return CancelledByService("the task was cancelled while it ran")
