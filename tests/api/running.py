"""A real `tideq` process, for what only sockets and signals show."""

import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TIDEQ = str(Path(sys.executable).parent / "tideq")
START_SECONDS = 180
SWITCHES = {name: os.environ[name] for name in ("TIDEQ_HOT_PATH", "TIDEQ_HTTP_PROTOCOL") if name in os.environ}
"""How every service of a run is made: `tests/everything.py` runs a part of the suite with both switched off."""
GREETING = "TideQ answers at "


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[str]
    url: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def complaints(self) -> str:
        """What it said besides its greeting."""
        return "".join(line for line in self.log.read_text().splitlines(True) if not line.startswith(GREETING))

    def peak_kib(self) -> int:
        """The most memory the process ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def environ(redis_url: str, queue_name: str, **overrides: str) -> dict[str, str]:
    """The environment with no setting of ours but these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")}
    return {
        **inherited,
        "REDIS_URL": redis_url,
        "TIDEQ_QUEUE": queue_name,
        "TIDEQ_AUTH": "off",
        **SWITCHES,
        **overrides,
    }


@contextmanager
def serving(settings: dict[str, str], folder: Path, port: int = 0, *options: str) -> Generator[Running]:
    """A service that takes work; killed at the end if it still runs. All it says goes to a file: a pipe would fill."""
    log = folder / f"serve-{len(list(folder.iterdir()))}.log"
    with log.open("w") as said:
        command = [TIDEQ, "serve", "--port", str(port), *options]
        process = subprocess.Popen(command, env=settings, stdout=said, stderr=subprocess.STDOUT, text=True)
    try:
        yield Running(process, _address(process, log), log)
    finally:
        process.kill()
        process.wait()


def tideq(settings: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself; the limit only ends a test that would hang."""
    return subprocess.run([TIDEQ, *arguments], env=settings, capture_output=True, text=True, timeout=120, check=False)


def _address(process: subprocess.Popen[str], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while not (greetings := [line for line in log.read_text().splitlines(True) if line.startswith(GREETING)]):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, f"the service neither started nor ended: {log.read_text()}"
        time.sleep(0.01)
    return greetings[0].removeprefix(GREETING).strip()
