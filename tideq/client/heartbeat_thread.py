"""Sends heartbeats from their own thread, so that neither a handler nor a busy loop starves them.

A daemon: after the program's end its tasks return when the heartbeat times out.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

CHECK_SECONDS = 0.5
"""How often a changed interval or status is checked for; registration may set another interval."""


class Heartbeat(msgspec.Struct, frozen=True):
    worker_id: str
    current_load: int
    status: str = "active"
    health: dict[str, Any] = {}


def never() -> float:
    return math.inf


class HeartbeatThread(threading.Thread):
    """Calls `beats` before every round and `send` with each of them; all callbacks run in threads of this class.

    `on_check` is called between rounds, and returns the seconds until it must be called again.
    """

    def __init__(
        self,
        beats: Callable[[], list[Heartbeat]],
        send: Callable[[Heartbeat], None],
        interval_seconds: Callable[[], float],
        on_failure: Callable[[str, Exception, int], None],
        on_check: Callable[[], float] = never,
    ) -> None:
        super().__init__(name="tideq-heartbeat", daemon=True)
        self._beats = beats
        self._send = send
        self._interval_seconds = interval_seconds
        self._on_failure = on_failure
        self._on_check = on_check
        self._failed_in_a_row: dict[str, int] = {}
        """By worker id; failures of the round itself are under an empty id."""
        self._in_flight: set[str] = set()
        self._statuses: dict[str, str] = {}
        self._send_now = False
        self._is_ending = threading.Event()

    @property
    def failure_count(self) -> int:
        """Failures in a row, of the worker that has most."""
        return max(list(self._failed_in_a_row.values()), default=0)

    def send_on_change(self, statuses: Mapping[str, str]) -> None:
        """Takes statuses by worker id; sends at once if one differs from the last heartbeat."""
        self._send_now |= any(self._statuses.get(each, "active") != status for each, status in statuses.items())

    def end(self) -> None:
        self._is_ending.set()

    def run(self) -> None:
        """Never ends by an error: without heartbeats the service gives up the worker and requeues its tasks."""
        beat_at, pause_seconds = time.monotonic(), 0.0
        while not self._is_ending.wait(pause_seconds):
            pause_seconds = CHECK_SECONDS
            try:
                interval_seconds = self._interval_seconds()
                pause_seconds = min(interval_seconds, CHECK_SECONDS, self._on_check())
                if self._send_now or time.monotonic() >= beat_at + interval_seconds:
                    beat_at, self._send_now = time.monotonic(), False
                    self._beat()
            except Exception as error:
                self._failed("", error)

    def _beat(self) -> None:
        beats = {beat.worker_id: beat for beat in self._beats()}
        for worker_id in self._failed_in_a_row.keys() - beats.keys():
            self._failed_in_a_row.pop(worker_id, None)
        for worker_id in beats.keys() - self._in_flight:
            self._statuses[worker_id] = beats[worker_id].status
            self._send_in_thread(beats[worker_id])

    def _send_in_thread(self, beat: Heartbeat) -> None:
        """One thread for each worker: an unanswered heartbeat does not delay the others.

        If no thread can be started, sends in this one: a late heartbeat is better than none.
        """
        self._in_flight.add(beat.worker_id)
        try:
            threading.Thread(target=self._send_one, args=(beat,), name="tideq-beat", daemon=True).start()
        except RuntimeError:
            self._send_one(beat)

    def _send_one(self, beat: Heartbeat) -> None:
        try:
            self._send(beat)
            self._failed_in_a_row.pop(beat.worker_id, None)
        except Exception as error:
            self._failed(beat.worker_id, error)
        finally:
            self._in_flight.discard(beat.worker_id)

    def _failed(self, worker_id: str, error: Exception) -> None:
        """Counted before it is logged; a log that cannot be written does not end the thread."""
        count = self._failed_in_a_row[worker_id] = self._failed_in_a_row.get(worker_id, 0) + 1
        if not self._is_ending.is_set():
            with contextlib.suppress(OSError, ValueError):
                self._on_failure(worker_id, error, count)
