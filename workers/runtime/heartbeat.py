"""Sends heartbeats from their own thread, so that no handler starves them: liveness, load and health of the worker."""

import contextlib
import http.client
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec
import structlog

from tideq.client.http.proxies import has_proxy
from tideq.client.http.trust import trust
from tideq.workers.runtime.service_api import UNKNOWN_WORKER, ServiceReply, decode_reply, encode, headers, problem_in

TIMEOUT_SECONDS = 10.0
CHECK_SECONDS = 0.5
"""How often a changed interval or status is checked for; registration may set another interval."""

log = structlog.get_logger("tideq.worker")


class Heartbeat(msgspec.Struct, frozen=True):
    worker_id: str
    current_load: int
    status: str
    health: dict[str, Any]


class HeartbeatThread(threading.Thread):
    """Calls `beats` before every round. Both callbacks run in threads of this class."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        beats: Callable[[], list[Heartbeat]],
        interval_seconds: Callable[[], float],
        on_reply: Callable[[str, ServiceReply], None],
        on_unknown: Callable[[str], None],
    ) -> None:
        super().__init__(name="tideq-heartbeat", daemon=True)
        self._failed_in_a_row: dict[str, int] = {}
        """By worker id; failures of the round itself are under an empty id."""
        self._in_flight: set[str] = set()
        self._statuses: dict[str, str] = {}
        self._send_now = False
        self._url = url.rstrip("/")
        self._headers = headers(api_key)
        self._beats = beats
        self._interval_seconds = interval_seconds
        self._on_reply = on_reply
        self._on_unknown = on_unknown
        self._stop = threading.Event()

    @property
    def failure_count(self) -> int:
        """Failures in a row, of the consumer that has most."""
        return max(list(self._failed_in_a_row.values()), default=0)

    def send_on_change(self, statuses: Mapping[str, str]) -> None:
        """Takes statuses by worker id; sends at once if one differs from the last heartbeat."""
        self._send_now |= any(self._statuses.get(each, "active") != status for each, status in statuses.items())

    def end(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Never ends by an error: without heartbeats the service gives up the worker and requeues its tasks."""
        beat_at, pause_seconds = time.monotonic(), 0.0
        while not self._stop.wait(pause_seconds):
            pause_seconds = CHECK_SECONDS
            try:
                interval_seconds = self._interval_seconds()
                pause_seconds = min(interval_seconds, CHECK_SECONDS)
                if self._send_now or time.monotonic() >= beat_at + interval_seconds:
                    beat_at, self._send_now = time.monotonic(), False
                    self._beat()
            except Exception as error:
                # Counted before it is logged; a log that cannot be written does not end the thread.
                with contextlib.suppress(OSError, ValueError):
                    self._failed("", error)

    def _beat(self) -> None:
        beats = {beat.worker_id: beat for beat in self._beats()}
        for worker_id in self._failed_in_a_row.keys() - beats.keys():
            self._failed_in_a_row.pop(worker_id, None)
        for worker_id in beats.keys() - self._in_flight:
            self._statuses[worker_id] = beats[worker_id].status
            self._send_in_thread(beats[worker_id])

    def _send_in_thread(self, beat: Heartbeat) -> None:
        """One thread for each consumer: an unanswered heartbeat does not delay the others.

        If no thread can be started, sends in this one: a late heartbeat is better than none.
        """
        self._in_flight.add(beat.worker_id)
        try:
            threading.Thread(target=self._send_one, args=(beat,), name="tideq-beat", daemon=True).start()
        except RuntimeError as error:
            log.warning("heartbeat thread not started", worker_id=beat.worker_id, error=str(error))
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
        count = self._failed_in_a_row[worker_id] = self._failed_in_a_row.get(worker_id, 0) + 1
        if not self._stop.is_set():
            text = f"{type(error).__name__}: {error}"
            log.warning("heartbeat failed", worker_id=worker_id, error=text, in_a_row=count)

    def _send(self, beat: Heartbeat) -> None:
        body = encode({"current_load": beat.current_load, "status": beat.status, "health": beat.health})
        status, content = self._post(f"/internal/workers/{beat.worker_id}/heartbeat", body)
        if status == 200:
            self._on_reply(beat.worker_id, decode_reply(content))
        elif problem_in(content).code == UNKNOWN_WORKER:
            self._on_unknown(beat.worker_id)
        else:
            raise http.client.HTTPException(f"{status} {problem_in(content).code}")

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """A new connection each time: a kept one may have died between two heartbeats."""
        if has_proxy(self._url, os.environ):
            from tideq.workers.runtime import proxied

            return proxied.post(self._url + path, body, self._headers, TIMEOUT_SECONDS)
        address = urlsplit(self._url)
        with contextlib.closing(_connect(address)) as connection:
            connection.request("POST", address.path + path, body, self._headers)
            response = connection.getresponse()
            return response.status, response.read()


def _connect(address: SplitResult) -> http.client.HTTPConnection:
    host, port = address.hostname or "", address.port
    if address.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=trust(verify=True))
