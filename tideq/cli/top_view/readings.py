"""Reads the state of a service in a background thread, so that keys are handled while the service does not answer."""

import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from tideq.client import Client, Forbidden, Limit, QueueStats, TideqError, Unauthorized, WorkerInfo

MAX_WORKERS = 500


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    stats: QueueStats
    workers: tuple[WorkerInfo, ...] | None
    """None where the access key may not read them."""
    limits: tuple[Limit, ...] | None

    @property
    def pause(self) -> Limit | None:
        """The pause of the whole queue."""
        return next((limit for limit in self.limits or () if limit.paused and limit.task_type is None), None)


class ReadFailure(msgspec.Struct, frozen=True):
    at: datetime
    error: Exception

    @property
    def is_final(self) -> bool:
        """Whether a later attempt would fail as well."""
        return isinstance(self.error, (Unauthorized, Forbidden))


def read(client: Client) -> Snapshot:
    """One reading; a producer's key may read the statistics, but neither limits nor workers."""
    stats = client.queue.stats()
    try:
        limits, workers = client.queue.limits(), _workers(client)
    except Forbidden:
        limits, workers = None, None
    return Snapshot(at=datetime.now(UTC), stats=stats, workers=workers, limits=limits)


def _workers(client: Client) -> tuple[WorkerInfo, ...]:
    return tuple(itertools.islice(client.workers.list(page_size=MAX_WORKERS), MAX_WORKERS))


class Reader:
    """Reads once an interval, in a thread of its own; `on_reading` is called in that thread."""

    def __init__(
        self, client: Client, interval_seconds: float, on_reading: Callable[[Snapshot | ReadFailure], None]
    ) -> None:
        self._client = client
        self._interval_seconds = interval_seconds
        self._on_reading = on_reading
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="tideq-top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def read_now(self) -> None:
        """Reads at once instead of at the end of the interval."""
        self._wake.set()

    def stop(self) -> None:
        """Does not join the thread: a call may be waiting for an answer."""
        self._is_stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._is_stopping:
            began = time.monotonic()
            self._wake.clear()
            self._on_reading(self._read())
            self._wake.wait(max(self._interval_seconds - (time.monotonic() - began), 0.01))

    def _read(self) -> Snapshot | ReadFailure:
        try:
            return read(self._client)
        except (TideqError, RuntimeError) as error:
            # RuntimeError: the client was closed while the reader, which is not joined, was in a call.
            return ReadFailure(datetime.now(UTC), error)
