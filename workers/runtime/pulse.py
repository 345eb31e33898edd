"""Heartbeats from a thread of their own, so that no handler starves them: that the worker is alive, and how it is."""

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
from tideq.workers.runtime.protocol import UNKNOWN_WORKER, Answer, decode_answer, encode, headers, problem_in

TIMEOUT_SECONDS = 10.0
LOOK_SECONDS = 0.5
"""How soon a new rhythm is noticed, which is not known before the service has told it, and a status that changed."""

log = structlog.get_logger("tideq.worker")


class Beat(msgspec.Struct, frozen=True):
    """What one worker says of itself."""

    worker_id: str
    current_load: int
    status: str
    health: dict[str, Any]


class Pulse(threading.Thread):
    """`beats` is asked before every round; both callbacks are called in this thread."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        beats: Callable[[], list[Beat]],
        interval_seconds: Callable[[], float],
        on_answer: Callable[[str, Answer], None],
        on_unknown: Callable[[str], None],
    ) -> None:
        super().__init__(name="tideq-pulse", daemon=True)
        self._failed_in_a_row: dict[str, int] = {}
        """By worker id; what hinders all of them is under none."""
        self._under_way: set[str] = set()
        self._statuses: dict[str, str] = {}
        self._is_hurried = False
        self._url = url.rstrip("/")
        self._headers = headers(api_key)
        self._beats = beats
        self._interval_seconds = interval_seconds
        self._on_answer = on_answer
        self._on_unknown = on_unknown
        self._stop = threading.Event()

    @property
    def failure_count(self) -> int:
        """Times in a row that the service did not answer the crew that it answers least."""
        return max(list(self._failed_in_a_row.values()), default=0)

    def tell_changes(self, statuses: Mapping[str, str]) -> None:
        """Statuses by worker id, which do not wait for the next round if they are not what was said in the last."""
        self._is_hurried |= any(self._statuses.get(each, "active") != status for each, status in statuses.items())

    def end(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Whatever goes wrong, the next round comes: a worker without a pulse is given up, and all it runs."""
        beat_at, pause_seconds = time.monotonic(), 0.0
        while not self._stop.wait(pause_seconds):
            pause_seconds = LOOK_SECONDS
            try:
                interval_seconds = self._interval_seconds()
                pause_seconds = min(interval_seconds, LOOK_SECONDS)
                if self._is_hurried or time.monotonic() >= beat_at + interval_seconds:
                    beat_at, self._is_hurried = time.monotonic(), False
                    self._beat()
            except Exception as error:
                # It is counted before it is logged, and a log that takes nothing more is no reason to end.
                with contextlib.suppress(OSError, ValueError):
                    self._failed("", error)

    def _beat(self) -> None:
        beats = {beat.worker_id: beat for beat in self._beats()}
        for gone in self._failed_in_a_row.keys() - beats.keys():
            self._failed_in_a_row.pop(gone, None)
        for worker_id in beats.keys() - self._under_way:
            self._statuses[worker_id] = beats[worker_id].status
            self._send_beside(beats[worker_id])

    def _send_beside(self, beat: Beat) -> None:
        """In a thread for each crew: where the service leaves one unanswered, the others do not wait for it.

        A process that gets no more threads sends it in this one: late is better than not at all.
        """
        self._under_way.add(beat.worker_id)
        try:
            threading.Thread(target=self._send_alone, args=(beat,), name="tideq-beat", daemon=True).start()
        except RuntimeError as error:
            log.warning("heartbeat thread not started", worker_id=beat.worker_id, error=str(error))
            self._send_alone(beat)

    def _send_alone(self, beat: Beat) -> None:
        try:
            self._send(beat)
            self._failed_in_a_row.pop(beat.worker_id, None)
        except Exception as error:
            self._failed(beat.worker_id, error)
        finally:
            self._under_way.discard(beat.worker_id)

    def _failed(self, worker_id: str, error: Exception) -> None:
        count = self._failed_in_a_row[worker_id] = self._failed_in_a_row.get(worker_id, 0) + 1
        if not self._stop.is_set():
            said = f"{type(error).__name__}: {error}"
            log.warning("heartbeat failed", worker_id=worker_id, error=said, in_a_row=count)

    def _send(self, beat: Beat) -> None:
        body = encode({"current_load": beat.current_load, "status": beat.status, "health": beat.health})
        status, content = self._post(f"/internal/workers/{beat.worker_id}/heartbeat", body)
        if status == 200:
            self._on_answer(beat.worker_id, decode_answer(content))
        elif problem_in(content).code == UNKNOWN_WORKER:
            self._on_unknown(beat.worker_id)
        else:
            raise http.client.HTTPException(f"{status} {problem_in(content).code}")

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """A connection each: a heartbeat is rare, and must not meet one that died since."""
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
