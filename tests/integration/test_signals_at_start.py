"""A signal that comes while a command still starts ends it, also where it is the first process of a container.

Linux drops signals that such a process has no handler for, so the commands run in PID namespaces of their own.
"""

import asyncio
import contextlib
import functools
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.workers.scripted import Json, Reply, ScriptedService, obliging, scripted_service
from tests.workers.waiting import until

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
QUICK_HANDLERS = SLOW_HANDLERS.replace("time.sleep(60)", "")
SEVERAL = 8
"""At once is several times what it takes to say the version, and a fraction of a drain."""
PARTS_OF_A_START = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.5)
HELD_UP = "register"
FIRST_MILLISECONDS = (0, 1, 2, 4, 6, 8, 10, 12, 15, 18, 22, 30)


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
    assert {name for name in found if name.startswith("tideq")} == {"tideq", "tideq.cli"}


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
        usual = statistics.median(map(_seconds_of_saying_the_version, range(AT_ONCE)))

        assert service.caller_count() == 0, "a worker that was told to stop has called the service"
    assert len(ended) == len(DELAYS) * len(COMMANDS)
    wrong = {start: status for start, status in ended.items() if status not in (GRACEFUL, INTERRUPTED, TERMINATED)}
    assert not wrong, wrong
    late = {(each.command, each.delay): each.seconds for each in starts if each.seconds > SEVERAL * usual}
    assert not late, (late, usual)


def _seconds_of_saying_the_version(_: int) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "tideq.cli", "--version"], check=True, capture_output=True)
    return time.monotonic() - began


async def test_a_worker_that_was_told_to_stop_neither_registers_nor_claims(tmp_path: Path) -> None:
    """At every moment of its start, with a service that would take it."""
    (tmp_path / "quick_handlers.py").write_text(QUICK_HANDLERS)
    namespace = _namespace()

    async with scripted_service() as service:
        usual, _ = await _told_to_stop(namespace, service, tmp_path, "poll")
        for moment in (HELD_UP, *(part * usual for part in PARTS_OF_A_START)):
            _, late = await _told_to_stop(namespace, service, tmp_path, moment)

            assert not {"register", "poll"} & {path.rpartition("/")[2] for path in late}, (moment, late)


async def _told_to_stop(
    namespace: tuple[str, ...], service: ScriptedService, folder: Path, moment: float | str
) -> tuple[float, list[str]]:
    """How long it had started when it was told, and what it asked afterwards. Told after so many seconds, or once the
    service has been asked for this."""
    service.heard.clear()
    may_answer = asyncio.Event()
    service.script = functools.partial(_held_up, may_answer) if moment == HELD_UP else obliging
    options = ("--handlers", "quick_handlers", "--url", service.url)
    command = [*namespace, sys.executable, "-m", "tideq.cli", "worker", *options]
    process = await asyncio.to_thread(_silently, command, folder)
    try:
        first = await asyncio.to_thread(_first_process_of, process)
        began = time.monotonic()
        if isinstance(moment, str):
            await until(lambda: service.bodies(moment), PATIENCE_SECONDS)
        else:
            await asyncio.sleep(moment)
        seconds = time.monotonic() - began
        # It stands still until all it has sent is read: nothing that comes then was on its way.
        os.kill(first, signal.SIGSTOP)
        await asyncio.to_thread(urllib.request.urlopen, f"{service.url}/mark")
        before_count = len(service.heard)
        os.kill(first, signal.SIGTERM)
        os.kill(first, signal.SIGCONT)
        may_answer.set()
        assert await asyncio.to_thread(process.wait, PATIENCE_SECONDS) in (GRACEFUL, TERMINATED)
        return seconds, [path for path, _ in service.heard[before_count:]]
    finally:
        process.kill()
        process.wait()


async def _held_up(may_answer: asyncio.Event, path: str, body: Json) -> Reply:
    """A registration is not answered before the worker was told to stop."""
    if path.endswith(HELD_UP):
        await may_answer.wait()
    return await obliging(path, body)


def _silently(command: Sequence[str], folder: Path | None = None) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_where_it_is_not_the_first_process_a_signal_at_any_instant_ends_it() -> None:
    """As in the chart's pods, whose containers share a first process: also before Python runs a line of ours."""
    for milliseconds in FIRST_MILLISECONDS:
        command = [sys.executable, "-m", "tideq.cli", "worker", "--handlers", "absent", "--url", "http://127.0.0.1:1"]
        process = _silently(command)
        time.sleep(milliseconds / 1_000)
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_SECONDS) == -signal.SIGTERM, milliseconds


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
    seconds: float = 0.0
    """From the signal to the end."""

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
            told_at = time.monotonic()
            status = process.wait(PATIENCE_SECONDS)
            self.seconds = time.monotonic() - told_at
            return status
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
