"""Every process of an installation, started by hand in any order and never started again."""

import contextlib
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec

from tests.api.running import TIDEQ
from tests.stores import free_port

HANDLERS = """
from tideq import task

@task
def double(number: int) -> int:
    return 2 * number
"""


@dataclass(frozen=True)
class Process:
    """One of ours, and the page it shows."""

    name: str
    port: int
    log: Path
    running: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def look(self, http: httpx.AsyncClient, path: str) -> httpx.Response | None:
        """Its answer, and nothing while it has none yet."""
        assert self.running.poll() is None, f"{self.name} has ended: {self.log.read_text()}"
        with contextlib.suppress(httpx.TransportError):
            return await http.get(f"{self.url}{path}")
        return None

    def logged(self, event: str = "") -> list[dict[str, object]]:
        """What it has logged, of one kind or of all."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [each for each in map(msgspec.json.decode, lines) if event in ("", each["event"])]


@contextlib.contextmanager
def started(settings: dict[str, str], folder: Path) -> Generator[dict[str, Process]]:
    """An API, a monitor, a replicator and a worker on one queue, and `tideq up` with a worker on another."""
    (folder / "doubling.py").write_text(HANDLERS)
    ports = {name: str(free_port()) for name in ("serve", "monitor", "replicate", "worker", "up")}
    service = f"http://127.0.0.1:{ports['serve']}"
    words = {
        "serve": ("--port", ports["serve"]),
        "monitor": ("--health-port", ports["monitor"]),
        "replicate": ("--health-port", ports["replicate"]),
        "worker": ("--url", service, "--handlers", "doubling", "--health-port", ports["worker"]),
        "up": ("--port", ports["up"], "--data-dir", "up"),
    }
    found: dict[str, Process] = {}
    with contextlib.ExitStack() as stack:
        for name, options in words.items():
            own = {**settings, "TIDEQ_QUEUE": f"{settings['TIDEQ_QUEUE']}_up"} if name == "up" else settings
            log = folder / f"{name}.log"
            with log.open("wb") as said:
                command = (TIDEQ, name, *options)
                running = subprocess.Popen(command, env=own, cwd=folder, stdout=said, stderr=subprocess.STDOUT)
            stack.callback(running.wait)
            stack.callback(running.kill)
            found[name] = Process(name, int(ports[name]), log, running)
        yield found
