"""Sends heartbeats while a program holds tasks, and fails tasks whose visibility timeout has passed.

A thread, so that neither a busy loop nor a slow handler stops it. It is a daemon: after the program's end its tasks
return when the heartbeat times out.
"""

import logging
import threading
import time
from typing import Any

import msgspec

from tideq.client._sync.transport import Transport
from tideq.client.calls import pulling as calls
from tideq.client.config import ClientConfig, Timeouts
from tideq.client.errors import NotHeld, TideqError, UnknownWorker
from tideq.client.models.pulled import PulledTask, Registered
from tideq.client.retrying import NO_RETRIES

log = logging.getLogger(__name__)

SHORT = Timeouts(connect=2.0, read=5.0, write=5.0, pool=5.0)
"""`stop` waits for a request in flight."""
TIMED_OUT: dict[str, Any] = {"message": "the visibility timeout passed", "code": "TIMEOUT", "retriable": True}


class HeldTasksHeartbeat:
    def __init__(self, connection: ClientConfig, registered: Registered) -> None:
        self.worker_id = registered.worker_id
        self.is_registered = True
        """False once the service has dropped this worker."""
        self.cancelled: frozenset[str] = frozenset()
        self._interval = registered.heartbeat_interval_ms / 1000
        self._transport = Transport(msgspec.structs.replace(connection, timeouts=SHORT), NO_RETRIES)
        self._held: dict[str, tuple[PulledTask, float]] = {}
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="tideq-pull-heartbeat", daemon=True)
        self._thread.start()

    def add(self, task: PulledTask, seconds: float) -> None:
        """Holds the task; it is failed after `seconds` unless removed before."""
        with self._changed:
            self._held[task.task_id] = (task, time.monotonic() + seconds)
            self._changed.notify()

    def remove(self, task_id: str) -> None:
        with self._changed:
            self._held.pop(task_id, None)

    def get(self, task_id: str) -> PulledTask:
        with self._changed:
            if task_id not in self._held:
                raise NotHeld(f"task {task_id} was not taken by this queue, or its visibility timeout has passed")
            return self._held[task_id][0]

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()
        self._transport.close()

    def _run(self) -> None:
        next_beat = time.monotonic() + self._interval
        while not self._pause(next_beat):
            for task in self._overdue():
                self._fail(task)
            if time.monotonic() >= next_beat:
                self._beat()
                next_beat = time.monotonic() + self._interval

    def _pause(self, until: float) -> bool:
        """Waits until then or until a task is overdue; returns whether to stop."""
        with self._changed:
            due = min([until, *(end for _, end in self._held.values())])
            if not self._is_stopping:
                self._changed.wait(max(due - time.monotonic(), 0))
            return self._is_stopping

    def _overdue(self) -> list[PulledTask]:
        with self._changed:
            overdue = [task for task, end in self._held.values() if end <= time.monotonic()]
            for task in overdue:
                del self._held[task.task_id]
            return overdue

    def _fail(self, task: PulledTask) -> None:
        """Fails the task, which costs a retry, as does the service when an execution times out."""
        try:
            self._transport.request(calls.report(self.worker_id, calls.failed(task, TIMED_OUT)))
        except TideqError as error:
            # The service times out the task, or the worker without heartbeats, by itself.
            log.warning("report of task %s failed, it returns at its execution deadline: %s", task.task_id, error)

    def _beat(self) -> None:
        try:
            beat = self._transport.request(calls.heartbeat(self.worker_id, len(self._held)))
        except UnknownWorker:
            self.is_registered = False
        except TideqError as error:
            log.warning("heartbeat of %s failed: %s", self.worker_id, error)
        else:
            self.cancelled |= set(beat.cancel)
