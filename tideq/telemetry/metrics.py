"""Metrics over OTLP, as OpenTelemetry's own variables ask for them; off unless one names a collector.

The same readings under the same names as at /metrics, and some once more as the messaging conventions call them. They
are cumulative, so what a collector misses it learns the next time: who sends never waits and keeps nothing but the
latest. Imports of the SDK are inside, as in `setup.py`.
"""

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

import structlog

from tideq.queue_core.duties import Duties
from tideq.queue_core.samples import Samples
from tideq.queue_core.settings import SettingsError
from tideq.telemetry.setup import OTLP_NAMES, make_resource

EXPORTERS = "OTEL_METRICS_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
INTERVAL_MS = 60_000
NOT_PUSHED = ("none", "prometheus")
"""Prometheus comes by itself, at /metrics."""
CLOSE_SECONDS = 2.0

log = structlog.get_logger("tideq.telemetry")

Look = Callable[[], Awaitable[Samples]]


def is_metered(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    asked = environ.get(EXPORTERS, "").strip().lower()
    return asked not in NOT_PUSHED if asked else any(environ.get(name) for name in ENDPOINTS)


async def push_for_ever(
    environ: Mapping[str, str], service_name: str, queue_name: str, look: Look, duties: Duties | None = None
) -> None:
    """Returns at once where nobody asked for it. Whatever goes wrong is told and costs a look, never the caller."""
    if not is_metered(environ):
        return
    # Importing takes a while, and the loop has others to serve.
    try:
        pusher, translation = await asyncio.to_thread(_prepared, environ, service_name, queue_name)
    except SettingsError as error:
        log.error("metrics are not exported", error=str(error))
        return
    with pusher:

        async def push() -> None:
            pusher.push(translation.data(await look()))

        interval_seconds = _interval_seconds(environ)
        await asyncio.sleep(interval_seconds)
        await (duties or Duties()).add_periodic("metrics export", interval_seconds, push)


async def push_counters(environ: Mapping[str, str], service_name: str, queue_name: str, duties: Duties) -> None:
    """For a process that knows nothing but what it counts."""
    process = str(os.getpid())

    async def look() -> Samples:
        return duties.counters.samples(process)

    await push_for_ever(environ, service_name, queue_name, look, duties)


class Pusher:
    """A thread that exports the latest of what it is given. Use as a context manager; leaving takes a limited time."""

    def __init__(self, exporter: Any) -> None:
        self.sent_count = 0
        self._exporter = exporter
        self._latest: queue.Queue[Any] = queue.Queue(1)
        self._is_failing = False
        self._thread = threading.Thread(target=self._work, name="tideq-metrics", daemon=True)

    def __enter__(self) -> "Pusher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        with contextlib.suppress(queue.Full):
            self._latest.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(max(deadline - time.monotonic(), 0))

    def push(self, data: Any) -> None:
        """In place of what still waits, if anything does."""
        with contextlib.suppress(queue.Empty):
            self._latest.get_nowait()
        with contextlib.suppress(queue.Full):
            self._latest.put_nowait(data)

    def _work(self) -> None:
        while (data := self._latest.get()) is not None:
            self._note(self._export(data))
        self._exporter.shutdown()

    def _export(self, data: Any) -> bool:
        try:
            return self._exporter.export(data).name == "SUCCESS"
        except Exception as error:
            log.warning("exporter failed", error=f"{type(error).__name__}: {error}")
            return False

    def _note(self, is_sent: bool) -> None:
        self.sent_count += is_sent
        if is_sent == self._is_failing:
            self._is_failing = not is_sent
            log.warning("metrics are delivered again" if is_sent else "metrics cannot be delivered")


def _prepared(environ: Mapping[str, str], service_name: str, queue_name: str) -> tuple[Pusher, Any]:
    from tideq.telemetry.metrics_data import Translation

    return Pusher(_exporter(environ)), Translation(make_resource(environ, service_name), queue_name)


def _exporter(environ: Mapping[str, str]) -> Any:
    asked = (environ.get(EXPORTERS) or "otlp").strip().lower()
    protocol = next((environ[each].strip() for each in PROTOCOLS if environ.get(each)), "http/protobuf")
    name = OTLP_NAMES.get(protocol, protocol) if asked == "otlp" else asked
    found = list(entry_points(group="opentelemetry_metrics_exporter", name=name))
    if not found:
        raise SettingsError(f"{EXPORTERS}: there is no exporter {name!r} here")
    return found[0].load()()


def _interval_seconds(environ: Mapping[str, str]) -> float:
    text = environ.get(INTERVAL, "").strip()
    return (max(int(text), 1) if text.isdigit() else INTERVAL_MS) / 1000
