"""Starts a monitor, and a collector that discards everything."""

import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from os import environ

from bench.http.processes import ServerProcess, service_settings


@contextmanager
def monitor(redis_url: str, settings: Mapping[str, str]) -> Generator[ServerProcess]:
    """`tideq monitor` with its log in a file."""
    chosen = {**environ, **service_settings(redis_url), **settings}
    with _running("monitor", ("-m", "tideq.cli", "monitor"), chosen) as (process, first_line):
        if not first_line.startswith("monitoring"):
            raise RuntimeError(f"the monitor did not start: {first_line}")
        yield ServerProcess(process.pid, 0)


@contextmanager
def collector(*behaviour: str) -> Generator[str]:
    """Yields its URL."""
    with _running("collector", ("-m", "bench.telemetry.collector", *behaviour), environ) as (_, first_line):
        yield first_line.strip()


@contextmanager
def _running(
    name: str, arguments: tuple[str, ...], settings: Mapping[str, str]
) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process and the first line it prints."""
    with tempfile.TemporaryFile("w+", prefix=f"tideq-bench-{name}-") as log:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, env=dict(settings), stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield process, process.stdout.readline() if process.stdout else ""
        finally:
            process.terminate()
            process.communicate()
