"""Starts a service for one run: `tideq up` with a temporary data folder and without depth limits."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from tideq.cli.benchmark.processes import GaveUp

GREETING = "TideQ answers at "
START_SECONDS = 90.0
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.05
OTHERS = ("TIDEQ_", "REDIS_", "DATABASE_", "OTEL_")
MUCH = "100000000"
SETTINGS = {
    "TIDEQ_DEPTH_REFUSE_LOW": MUCH,
    "TIDEQ_DEPTH_REFUSE_MEDIUM": MUCH,
    "TIDEQ_DEPTH_REFUSE_ALL": MUCH,
    "TIDEQ_MAX_OUTBOX_ENTRIES": MUCH,
    "TIDEQ_LOG_TRANSITIONS": "off",
}


@contextlib.contextmanager
def temporary_service() -> Generator[str]:
    """Yields the URL. Variables of the environment that configure other services are removed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    with tempfile.TemporaryDirectory(prefix="tideq-bench-") as folder:
        output = Path(folder) / "output"
        command = [sys.executable, "-P", "-m", "tideq.cli", "up", "--port", "0", "--no-demo"]
        with output.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--data-dir", str(Path(folder) / "data")],
                env=environ | SETTINGS,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        try:
            yield _url(process, output)
        finally:
            _stop(process)


def _url(process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while GREETING not in (text := output.read_text(errors="replace")) or "\n" not in text.partition(GREETING)[2]:
        if process.poll() is not None or time.monotonic() > deadline:
            raise GaveUp(f"the temporary service did not start: {' '.join(text.split())[-500:]}")
        time.sleep(LOOK_SECONDS)
    return text.partition(GREETING)[2].split()[0]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
