"""A signal that comes while a command still starts ends it, also where it is the first process of a container.

Linux drops signals that such a process has no handler for, so the commands run in PID namespaces of their own.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

DELAYS = (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.2, 2.0)
COMMANDS = ("worker", "serve", "monitor", "replicate", "up")
AT_ONCE = 4
PATIENCE_SECONDS = 20
GRACEFUL, INTERRUPTED, TERMINATED = 0, 130, 143
UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")
AS_USER = (*UNSHARE, "--user", "--map-root-user")
SLOW_HANDLERS = """
import time
from tideq import task

@task
def answer() -> None:
    pass

time.sleep(60)
"""


@dataclass
class Silent:
    """Takes connections for the store, the database and the service, and answers none."""

    port: int
    listener: socket.socket
    met: list[socket.socket] = field(default_factory=list)

    def caller_count(self) -> int:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.met.append(self.listener.accept()[0])
        return len(self.met)


@contextlib.contextmanager
def silent() -> Generator[Silent]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener, contextlib.ExitStack() as stack:
        listener.setblocking(False)
        service = Silent(listener.getsockname()[1], listener)
        yield service
        for met in service.met:
            stack.callback(met.close)


def test_nothing_of_others_is_imported_before_signals_are_handled() -> None:
    told = "import sys; was = set(sys.modules); import tideq.cli; print(*sorted(set(sys.modules) - was))"

    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()

    assert {name.partition(".")[0] for name in found} - sys.stdlib_module_names == {"tideq"}
    assert {name for name in found if name.startswith("tideq")} == {"tideq", "tideq.cli", "tideq.cli.early_signals"}


def test_a_signal_during_start_ends_the_first_process_of_a_container_at_every_delay(tmp_path: Path) -> None:
    namespace = _namespace()
    (tmp_path / "slow_handlers.py").write_text(SLOW_HANDLERS)
    with silent() as store, silent() as service, ThreadPoolExecutor(AT_ONCE) as pool:
        starts = [
            _Start(namespace, command, delay, tmp_path, store.port, service.port)
            for delay in DELAYS
            for command in COMMANDS
        ]
        ended = dict(zip(((each.command, each.delay) for each in starts), pool.map(_Start.end, starts), strict=True))

        assert service.caller_count() == 0, "a worker that was told to stop has called the service"
    assert len(ended) == len(DELAYS) * len(COMMANDS)
    wrong = {start: status for start, status in ended.items() if status not in (GRACEFUL, INTERRUPTED, TERMINATED)}
    assert not wrong, wrong


def _namespace() -> tuple[str, ...]:
    for command in (UNSHARE, AS_USER):
        with contextlib.suppress(OSError):
            if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
                return command
    pytest.skip("no PID namespace can be made here: it takes root, or user namespaces, and unshare of util-linux")


@dataclass
class _Start:
    namespace: tuple[str, ...]
    command: str
    delay: float
    folder: Path
    store_port: int
    service_port: int

    def end(self) -> int | str:
        """The exit status after a signal, half of the time Ctrl-C's; else why there is none."""
        command = [*self.namespace, sys.executable, "-m", "tideq.cli", self.command, *self._options()]
        environ = {
            **os.environ,
            "REDIS_URL": f"redis://127.0.0.1:{self.store_port}",
            "DATABASE_URL": f"postgresql://tideq@127.0.0.1:{self.store_port}/tideq",
            "TIDEQ_AUTH": "off",
            "TIDEQ_PORT": "0",
        }
        process = subprocess.Popen(command, env=environ, cwd=self.folder, stderr=subprocess.PIPE)
        try:
            first = _first_process_of(process)
            time.sleep(self.delay)
            os.kill(first, signal.SIGINT if DELAYS.index(self.delay) % 2 else signal.SIGTERM)
            return process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            return "still there"
        except LookupError as error:
            return str(error)
        finally:
            process.kill()
            process.communicate()

    def _options(self) -> list[str]:
        if self.command == "worker":
            return ["--handlers", "slow_handlers", "--url", f"http://127.0.0.1:{self.service_port}"]
        if self.command == "up":
            return ["--data-dir", str(self.folder / f"data-{self.delay}"), "--no-demo"]
        return []


def _first_process_of(unshare: "subprocess.Popen[bytes]") -> int:
    """Once it handles SIGTERM: what comes before that is Python's own start."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for pid in Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError):
                caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
                if caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
                    return int(pid)
        if unshare.poll() is not None:
            raise LookupError(f"ended by itself with {unshare.returncode}")
        time.sleep(0.002)
    raise LookupError("SIGTERM is never handled")
