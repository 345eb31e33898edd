"""Serves `/health`: each check by name; 200 if all checks pass, else 503."""

import os
import resource
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

MAX_MEMORY_PERCENT = 90.0
MAX_LOOP_LAG_SECONDS = 5.0
LOOP_LAG = "event_loop_lag_seconds"
MAX_REQUEST_SECONDS = 5.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CGROUP = Path("/sys/fs/cgroup")


class HealthPortTaken(RuntimeError):
    """The health page cannot listen on its port; the message names it."""


class Check(msgspec.Struct, frozen=True):
    ok: bool
    value: Any
    limit: Any = None


class Health(msgspec.Struct, frozen=True):
    status: str
    checks: dict[str, Check]

    @property
    def is_healthy(self) -> bool:
        return self.status == "healthy"


def overall_health(checks: dict[str, Check]) -> Health:
    return Health("healthy" if all(check.ok for check in checks.values()) else "unhealthy", checks)


def liveness(health: Health) -> Health:
    """Only the checks that a restart can fix: a worker that holds tasks while the service is away stays alive."""
    return overall_health({name: check for name, check in health.checks.items() if name == LOOP_LAG})


def memory_check() -> Check:
    percent = round(100 * _resident_bytes() / _memory_limit_bytes(), 1)
    return Check(percent < MAX_MEMORY_PERCENT, percent, MAX_MEMORY_PERCENT)


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        # Without /proc: the peak instead; macOS reports it in bytes.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _memory_limit_bytes() -> int:
    """The limit of the container, else the memory of the machine."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (CGROUP / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return min(int(text), whole)
    return whole


class CpuMeter:
    """CPU use in per cent of one core, since the last call."""

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), time.process_time()

    def percent(self) -> float:
        now, used = time.monotonic(), time.process_time()
        share = (used - self._used) / max(now - self._at, 1e-6)
        self._at, self._used = now, used
        return round(100 * share, 1)


class HealthServer:
    """Answers from its own threads, so that a loop that hangs is visible."""

    def __init__(
        self, host: str, port: int, check_health: Callable[[], Health], metrics: Callable[[], bytes] | None = None
    ) -> None:
        """`metrics` returns Prometheus text; with it, `/metrics` is served too."""

        class Handler(BaseHTTPRequestHandler):
            timeout = MAX_REQUEST_SECONDS

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics" and metrics is not None:
                    self._answer(200, METRICS_TYPE, metrics())
                    return
                if path not in ("/health", "/healthz", "/livez", "/readyz"):
                    self.send_error(404)
                    return
                health = liveness(check_health()) if path == "/livez" else check_health()
                self._answer(200 if health.is_healthy else 503, "application/json", msgspec.json.encode(health))

            def _answer(self, status: int, media_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                """Probes are not logged."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise HealthPortTaken(f"no health page on {host} port {port}: {error.strerror}") from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="tideq-health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
