"""Real `tideq worker` processes, and the ledger their handlers keep."""

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.api.running import TIDEQ

HANDLERS = Path(__file__).with_name("ledgered.py")
STOP_SECONDS = 30
Line = dict[str, Any]


@dataclass(frozen=True)
class Ledger:
    path: Path

    def lines(self, event: str, **facts: Any) -> list[Line]:
        """Those about this event, with these facts; a line half written is not there yet."""
        whole = self.path.read_bytes().rpartition(b"\n")[0] if self.path.exists() else b""
        # Most lines are told apart without being read: tests look often, and the ledger grows long.
        marks = [msgspec.json.encode({name: value})[1:-1] for name, value in {"event": event, **facts}.items()]
        lines = [line for line in whole.splitlines() if all(mark in line for mark in marks)]
        return [msgspec.json.decode(line, type=Line) for line in lines]

    def count(self, event: str, **facts: Any) -> int:
        return len(self.lines(event, **facts))

    def attempts(self, event: str) -> Counter[tuple[str, int]]:
        return Counter((line["task_id"], line["attempt"]) for line in self.lines(event) if "task_id" in line)


@dataclass(frozen=True)
class Hand:
    """One worker process."""

    process: subprocess.Popen[bytes]
    name: str
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self.log.read_text()

    def events(self, event: str) -> list[Line]:
        """What it logged under this name."""
        lines = [line for line in self.said().splitlines() if line.startswith("{")]
        logged = [msgspec.json.decode(line, type=Line) for line in lines]
        return [line for line in logged if line["event"] == event]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ended(self) -> int:
        """Waits for it to end by itself; its exit code."""
        return self.process.wait(STOP_SECONDS)


class Workshop:
    """A folder with handlers in it, and the workers that run them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        shutil.copy(HANDLERS, folder)
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.hands: list[Hand] = []

    @property
    def environ(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")}
        return {**inherited, "LEDGER": str(self.ledger.path)}

    def hire(self, url: str, *options: str, handlers: str = "ledgered") -> Hand:
        name = f"hand-{uuid.uuid4().hex[:8]}"
        log = self.folder / f"{name}.log"
        command = [TIDEQ, "worker", "--url", url, "--name", name, "--handlers", handlers, *options]
        with log.open("w") as said:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environ, stdout=said, stderr=said)
        self.hands.append(Hand(process, name, log))
        return self.hands[-1]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A worker that ends by itself."""
        command: Sequence[str] = [TIDEQ, "worker", *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS,
            check=False,
        )

    def new_file(self) -> Path:
        """Not there yet: what a handler may wait for."""
        return self.folder / uuid.uuid4().hex


@contextmanager
def workshop(folder: Path) -> Generator[Workshop]:
    """Everyone still there at the end is killed; what they said is shown if the test failed."""
    shop = Workshop(folder)
    try:
        yield shop
    finally:
        for hand in shop.hands:
            hand.process.kill()
            hand.process.wait()
            sys.stdout.write(f"--- {hand.log.name}\n{hand.said()[-3_000:]}\n")
