"""Runs a server as a child process that is started, waited for and stopped, and that ends with this process.

Does not restart a server that has stopped: `check()` raises, and the caller decides.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tideq.embedded.embedded_errors import ServerDidNotStart, ServerStopped
from tideq.embedded.environment import ServerEnvironment
from tideq.embedded.identity import OURSELVES, Identity
from tideq.embedded.watchdog import Watchdog, kernel_can_watch

LAUNCHER = Path(__file__).with_name("launch.py")
POLL_MS = 5


@dataclass(frozen=True)
class ServerCommand:
    name: str
    argv: Sequence[str]
    log_path: Path
    stop_signals: Sequence[signal.Signals]
    """Sent in turn, then SIGKILL; the first one is also the signal the server gets when this process dies."""
    identity: Identity = OURSELVES


class ServerProcess:
    def __init__(self, command: ServerCommand, environment: ServerEnvironment) -> None:
        self._command = command
        self._environment = environment
        death_signal = command.stop_signals[0]
        with _fresh_log(command.log_path) as log:
            self._process = spawn(command.argv, environment, command.identity, death_signal, output=log)
        self._watchdog = None if kernel_can_watch() else Watchdog(self.pid, death_signal)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Raises ServerDidNotStart when the process ends, or after the start timeout."""
        timeout_ms = self._environment.timeouts.start_ms
        deadline = time.monotonic() + timeout_ms / 1000
        while not is_ready():
            if (exit_code := self._process.poll()) is not None:
                raise self._did_not_start(f"it ended with exit code {exit_code}")
            if time.monotonic() > deadline:
                raise self._did_not_start(f"no answer in {timeout_ms / 1000:g} s")
            time.sleep(POLL_MS / 1000)

    def check(self) -> None:
        if (exit_code := self._process.poll()) is not None:
            raise ServerStopped(self._command.name, exit_code, self._command.log_path)

    def stop(self) -> None:
        for stop_signal in (*self._command.stop_signals, signal.SIGKILL):
            self._process.send_signal(stop_signal)
            if self._ended_within(self._environment.timeouts.stop_ms):
                break
        if self._watchdog:
            self._watchdog.close()

    def _ended_within(self, timeout_ms: int) -> bool:
        try:
            self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _did_not_start(self, problem: str) -> ServerDidNotStart:
        return ServerDidNotStart(self._command.name, problem, self._command.log_path)


def spawn(
    argv: Sequence[str],
    environment: ServerEnvironment,
    identity: Identity,
    death_signal: signal.Signals,
    *,
    output: IO[bytes] | int,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Starts a program that inherits the servers' lock and ends with this process.

    A process group of its own, so that Ctrl-C reaches only this process, which stops the servers in order. The working
    directory is "/", because another user may not be allowed into the current one.
    """
    return subprocess.Popen(
        [*_launcher(identity, death_signal), *identity.prefix, *argv],
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env=environment.server_environ(),
        pass_fds=(environment.servers_fd,),
        process_group=0,
        umask=0o077,
    )


def _launcher(identity: Identity, death_signal: signal.Signals) -> list[str]:
    kernel_signal = int(death_signal) if kernel_can_watch() else 0
    account = f"{identity.account.uid}:{identity.account.gid}" if identity.account else "-"
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), str(kernel_signal), account]


def _fresh_log(path: Path) -> IO[bytes]:
    """Starts a new log and keeps the previous one, so that logs stay bounded without log rotation."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.exists():
        path.replace(path.with_suffix(".log.1"))
    return path.open("wb")


@dataclass(frozen=True)
class FinishedProgram:
    exit_code: int
    output: str

    @property
    def last_line(self) -> str:
        lines = self.output.strip().splitlines()
        return lines[-1] if lines else f"exit code {self.exit_code}"


def run_to_end(
    argv: Sequence[str], environment: ServerEnvironment, identity: Identity, *, text: str = ""
) -> FinishedProgram:
    """Runs a program to its end; like a server, it inherits the lock and ends with this process."""
    process = spawn(argv, environment, identity, signal.SIGTERM, output=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        output, _ = process.communicate(text.encode())
    except BaseException:
        # The whole process group, because initdb starts servers of its own.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return FinishedProgram(process.returncode, output.decode(errors="replace"))
