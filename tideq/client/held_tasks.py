"""The tasks that a program holds: its heartbeats, and their end where the visibility timeout has passed."""

import logging
import math
import threading
import time
from typing import Any

import msgspec

from tideq.client._sync.transport import Transport
from tideq.client.calls import pulling as calls
from tideq.client.config import ClientConfig, Timeouts
from tideq.client.errors import NotHeld, TideqError, UnknownWorker
from tideq.client.heartbeat_thread import Heartbeat, HeartbeatThread
from tideq.client.models.pulled import PulledTask, Registered
from tideq.client.retrying import NO_RETRIES

log = logging.getLogger(__name__)

SHORT = Timeouts(connect=2.0, read=5.0, write=5.0, pool=5.0)
"""`stop` waits for a report in flight."""
TIMED_OUT: dict[str, Any] = {"message": "the visibility timeout passed", "code": "TIMEOUT", "retriable": True}


class HeldTasks:
    def __init__(self, connection: ClientConfig, registered: Registered) -> None:
        self.worker_id = registered.worker_id
        self.is_registered = True
        """False once the service has dropped this worker."""
        self.cancelled: frozenset[str] = frozenset()
        self._transport = Transport(msgspec.structs.replace(connection, timeouts=SHORT), NO_RETRIES)
        self._held: dict[str, tuple[PulledTask, float]] = {}
        self._changing = threading.Lock()
        self._heartbeats = HeartbeatThread(
            lambda: [Heartbeat(self.worker_id, len(self._held))],
            self._send,
            lambda: registered.heartbeat_interval_ms / 1000,
            lambda worker_id, error, _: log.warning("heartbeat of %s failed: %s", worker_id, error),
            self._fail_overdue,
        )
        self._heartbeats.start()

    def add(self, task: PulledTask, seconds: float) -> None:
        """Holds the task; it is failed after `seconds` unless removed before."""
        with self._changing:
            self._held[task.task_id] = (task, time.monotonic() + seconds)

    def remove(self, task_id: str) -> None:
        with self._changing:
            self._held.pop(task_id, None)

    def get(self, task_id: str) -> PulledTask:
        with self._changing:
            if task_id not in self._held:
                raise NotHeld(f"task {task_id} was not taken by this queue, or its visibility timeout has passed")
            return self._held[task_id][0]

    def stop(self) -> None:
        self._heartbeats.end()
        self._heartbeats.join()
        self._transport.close()

    def _fail_overdue(self) -> float:
        """Returns the seconds until the next task is overdue."""
        now = time.monotonic()
        with self._changing:
            overdue = [task for task, end in self._held.values() if end <= now]
            for task in overdue:
                del self._held[task.task_id]
            next_end = min((end for _, end in self._held.values()), default=math.inf)
        for task in overdue:
            self._fail(task)
        return max(next_end - time.monotonic(), 0.0)

    def _fail(self, task: PulledTask) -> None:
        """Fails the task, which costs a retry, as does the service when an execution times out."""
        try:
            self._transport.request(calls.report(self.worker_id, calls.failed(task, TIMED_OUT)))
        except TideqError as error:
            # The service times out the task, or the worker without heartbeats, by itself.
            log.warning("report of task %s failed, it returns at its execution deadline: %s", task.task_id, error)

    def _send(self, beat: Heartbeat) -> None:
        try:
            reply = self._transport.request(calls.heartbeat(beat.worker_id, beat.current_load))
        except UnknownWorker:
            self.is_registered = False
        else:
            self.cancelled |= set(reply.cancel)
