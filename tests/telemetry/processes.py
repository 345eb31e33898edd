"""Real processes under observation: the whole service in one, workers, and a collector that others wrote."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.running import GREETING, START_SECONDS, TIDEQ, environ
from tests.stores import free_port

HERE = Path(__file__).parent
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "100"}


def observed(redis_url: str, queue_name: str, collector: str, **more: str) -> dict[str, str]:
    """An environment in which everything is traced, and told soon."""
    names = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_TRACES_SAMPLER": "always_on", **SOON, **more}
    return environ(redis_url, queue_name, **names)


@contextmanager
def process(settings: Mapping[str, str], log: Path, *words: str, ready: str) -> Generator[subprocess.Popen[bytes]]:
    """A command, from when it has said that it is ready; killed in the end, and what it said shown."""
    with log.open("wb") as said:
        running = subprocess.Popen(words, cwd=HERE, env=dict(settings), stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + START_SECONDS
        while ready not in log.read_text():
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield running
    finally:
        running.kill()
        running.wait()
        sys.stdout.write(f"--- {log.name}\n{log.read_text()[-3_000:]}\n")


@contextmanager
def service(settings: Mapping[str, str], folder: Path) -> Generator[str]:
    """API, monitor and replicator in one, on stores that are there; its address."""
    with whole_service(settings, folder) as running:
        yield running[1]


@contextmanager
def whole_service(
    settings: Mapping[str, str], folder: Path, name: str = "up"
) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """The same, and its process."""
    log, data = folder / f"{name}.log", folder / f"{name}-data"
    words = (TIDEQ, "up", "--port", "0", "--no-demo", "--data-dir", str(data))
    with process(settings, log, *words, ready=GREETING) as running:
        line = next(line for line in log.read_text().splitlines() if line.startswith(GREETING))
        yield running, line.removeprefix(GREETING).strip()


@contextmanager
def monitor(settings: Mapping[str, str], folder: Path, name: str = "monitor") -> Generator[subprocess.Popen[bytes]]:
    # Said by one of its duties: by then all have begun, and signals are heard.
    with process(settings, folder / f"{name}.log", TIDEQ, "monitor", ready="probing disabled") as running:
        yield running


@contextmanager
def worker(settings: Mapping[str, str], folder: Path, url: str) -> Generator[subprocess.Popen[bytes]]:
    words = (TIDEQ, "worker", "--url", url, "--handlers", "traced_handlers")
    with process(settings, folder / "worker.log", *words, ready="registered") as running:
        yield running


@contextmanager
def collector_of_others(forwards_to: str, folder: Path, protocol: str) -> Generator[str]:
    """rotel, a collector in Rust: takes OTLP over HTTP or gRPC, decodes it, and sends on what it understood."""
    found = importlib.util.find_spec("rotel")
    if found is None or found.origin is None:
        pytest.skip("rotel is not installed: it is a wheel for some platforms only")
    agent, log = Path(found.origin).with_name("rotel-agent"), folder / "rotel.log"
    ports = {"grpc": free_port(), "http": free_port()}
    own = {f"ROTEL_OTLP_{name.upper()}_ENDPOINT": f"127.0.0.1:{port}" for name, port in ports.items()}
    sending = {
        "ROTEL_EXPORTER": "otlp",
        "ROTEL_OTLP_EXPORTER_ENDPOINT": forwards_to,
        "ROTEL_OTLP_EXPORTER_PROTOCOL": "http",
        "ROTEL_BATCH_TIMEOUT": "100ms",
        "ROTEL_TELEMETRY_ENDPOINT": "",
    }
    with process({**os.environ, **own, **sending}, log, str(agent), "start", ready=""):
        yield f"http://127.0.0.1:{ports[protocol]}"
