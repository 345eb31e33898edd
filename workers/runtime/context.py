"""The context of a running task: cancellation, progress, extension. Safe to use from any thread."""

import functools
import threading
import time
from typing import Any, Protocol

import structlog

from tideq.queue_core.telemetry.trace_context import trace_id_of
from tideq.workers.runtime.failures import CancelledByService, storable_text

MAX_MESSAGE_CHARACTERS = 1_000
MAX_EXTENSION_SECONDS = 4e9

_event_creation_lock = threading.Lock()
"""Events are created on the first `wait`: an event costs as much as a whole no-op task."""


class TaskReporter(Protocol):
    """Receives the reports of a context."""

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None: ...
    def extend(self, task_id: str, lease: str, seconds: float) -> None: ...


class TaskContext:
    """A handler receives it in the argument that is annotated with this type."""

    def __init__(
        self,
        task_id: str,
        task_type: str,
        attempt: int,
        lease: str,
        timeout_seconds: float,
        reporter: TaskReporter,
        traceparent: str | None = None,
    ) -> None:
        self.task_id = task_id
        self.task_type = task_type
        self.attempt = attempt
        self.traceparent = traceparent
        """W3C Trace Context of this attempt; None if the task has no trace."""
        self._lease = lease
        self._reporter = reporter
        self.is_cancelled = False
        """True once the task was cancelled, timed out or given to another worker: the service refuses its result."""
        self._stop: threading.Event | None = None
        self._deadline = time.monotonic() + timeout_seconds

    @property
    def trace_id(self) -> str:
        """Id of the trace the task was submitted in, else an id derived from the task id."""
        return trace_id_of(self.task_id, self.traceparent)

    @functools.cached_property
    def log(self) -> Any:
        """A logger that adds the task's id, type, attempt and trace to every line."""
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
        """Raises CancelledByService if the task was cancelled: call it regularly in long work."""
        if self.is_cancelled:
            raise self.cancellation()

    def wait(self, seconds: float) -> bool:
        """Sleeps for `seconds` or until the task is cancelled; returns whether it was cancelled."""
        with _event_creation_lock:
            self._stop = self._stop or threading.Event()
        # Checked after the event exists, so that a cancellation in between is not missed.
        return self.is_cancelled or self._stop.wait(seconds)

    def progress(self, percent: float, message: str = "") -> None:
        """Reports progress, 0 to 100. Reports are sent in batches; only the latest is sent."""
        # NaN compares as false and counts as 0.
        share = float(percent) if percent > 0 else 0.0
        self._reporter.progress(
            self.task_id, self._lease, min(share, 100.0), storable_text(message)[:MAX_MESSAGE_CHARACTERS]
        )

    def extend(self, seconds: float) -> None:
        """Moves the execution deadline to `seconds` from now. Heartbeats never do: a handler that hangs times out."""
        if not 0 < seconds <= MAX_EXTENSION_SECONDS:
            raise ValueError(f"cannot extend by {seconds} seconds: 0 to {MAX_EXTENSION_SECONDS:g} are allowed")
        self._deadline = max(self._deadline, time.monotonic() + seconds)
        self._reporter.extend(self.task_id, self._lease, seconds)

    def cancel(self) -> None:
        """Called by the runtime when the service cancels the task, or when its deadline has passed."""
        self.is_cancelled = True
        if self._stop is not None:
            self._stop.set()

    def cancellation(self) -> CancelledByService:
        """The code is TIMEOUT where the deadline passed, as the service's own: the next attempt then gets more time."""
        if self.overdue_seconds > 0:
            return CancelledByService("the execution deadline passed", code="TIMEOUT")
        return CancelledByService("the task was cancelled while it ran")
