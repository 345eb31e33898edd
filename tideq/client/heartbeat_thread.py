"""What beats while a program holds tasks: it keeps the worker alive, and gives up tasks whose time is over.

A thread, for programs of either kind: neither a busy loop nor a slow handler may stop it. It ends with the program, and
what was held comes back by itself then.
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
"""Whoever leaves waits for a beat that is under way."""
OVER: dict[str, Any] = {"message": "the visibility timeout passed", "code": "TIMEOUT", "retriable": True}


class HeldTasksHeartbeat:
    def __init__(self, connection: ClientConfig, registered: Registered) -> None:
        self.worker_id = registered.worker_id
        self.is_known = True
        """Until the service says that it has given this worker up."""
        self.cancelled: frozenset[str] = frozenset()
        self._interval = registered.heartbeat_interval_ms / 1000
        self._transport = Transport(msgspec.structs.replace(connection, timeouts=SHORT), NO_RETRIES)
        self._held: dict[str, tuple[PulledTask, float]] = {}
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="tideq-pull-heart", daemon=True)
        self._thread.start()

    def hold(self, task: PulledTask, seconds: float) -> None:
        """Unless it is let go before, the task is given up when the seconds are over."""
        with self._changed:
            self._held[task.task_id] = (task, time.monotonic() + seconds)
            self._changed.notify()

    def let_go(self, task_id: str) -> None:
        with self._changed:
            self._held.pop(task_id, None)

    def held(self, task_id: str) -> PulledTask:
        with self._changed:
            if task_id not in self._held:
                raise NotHeld(f"task {task_id} was not taken by this queue, or its time is up")
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
                self._give_up(task)
            if time.monotonic() >= next_beat:
                self._beat()
                next_beat = time.monotonic() + self._interval

    def _pause(self, until: float) -> bool:
        """Until then, or until a task is over, whichever is first; whether it was told to stop."""
        with self._changed:
            due = min([until, *(end for _, end in self._held.values())])
            if not self._is_stopping:
                self._changed.wait(max(due - time.monotonic(), 0))
            return self._is_stopping

    def _overdue(self) -> list[PulledTask]:
        with self._changed:
            over = [task for task, end in self._held.values() if end <= time.monotonic()]
            for task in over:
                del self._held[task.task_id]
            return over

    def _give_up(self, task: PulledTask) -> None:
        """As the service does when an execution takes too long: it costs a retry. If it is told too late, it did so."""
        try:
            self._transport.ask(calls.tell(self.worker_id, calls.failed(task, OVER)))
        except TideqError as error:
            # The service has its own deadline for the task, and for a worker it no longer hears of.
            log.warning("task %s is given up by its own deadline: %s", task.task_id, error)

    def _beat(self) -> None:
        try:
            beat = self._transport.ask(calls.heartbeat(self.worker_id, len(self._held)))
        except UnknownWorker:
            self.is_known = False
        except TideqError as error:
            log.warning("heartbeat of %s failed: %s", self.worker_id, error)
        else:
            self.cancelled |= set(beat.cancel)
