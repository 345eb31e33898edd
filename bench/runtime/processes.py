"""Worker processes of a measurement."""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench.http.processes import ServerProcess

CONCURRENCY = 500
"""The most tasks one claim may take: handlers take no time, so only held tasks overlap with the claims."""


@contextmanager
def workers(
    service: ServerProcess,
    count: int,
    concurrency: int = CONCURRENCY,
    environ: Mapping[str, str] | None = None,
    handlers: Sequence[str] = ("bench.runtime.handlers",),
) -> Generator[list[ServerProcess]]:
    """`tideq worker` processes with default options."""
    at = f"http://127.0.0.1:{service.port}"
    runs = ("-m", "tideq.cli", "worker", "--url", at, "--handlers", ",".join(handlers))
    with ExitStack() as running:
        command = (*runs, "--concurrency", str(concurrency))
        yield [running.enter_context(_running(command, environ or {})) for _ in range(count)]


@contextmanager
def single_calls(service: ServerProcess) -> Generator[list[ServerProcess]]:
    with _running(("-m", "bench.runtime.single_calls", str(service.port)), {}) as worker:
        yield [worker]


@contextmanager
def _running(arguments: Sequence[str], environ: Mapping[str, str]) -> Generator[ServerProcess]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")}
    process = subprocess.Popen(
        [sys.executable, *arguments], env={**inherited, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield ServerProcess(process.pid, 0)
    finally:
        process.kill()
        process.wait()
