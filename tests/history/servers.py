"""Servers that tests stop, kill, start again and set back, and replicators as processes of their own."""

import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.api.running import TIDEQ
from tideq.embedded import EmbeddedStores, PostgresOptions, ValkeyOptions, bundled_valkey, find_running


class Server:
    """Ours to kill. It comes back under the same address, with the data it had."""

    def __init__(self, folder: Path, *, valkey: ValkeyOptions | None, postgres: PostgresOptions | None) -> None:
        self.folder = folder.resolve()
        self._stores = EmbeddedStores(folder, valkey=valkey, postgres=postgres)
        self._is_up = False

    def start(self) -> None:
        if not self._is_up:
            self._stores.start()
            self._is_up = True

    def stop(self) -> None:
        if self._is_up:
            self._stores.stop()
            self._is_up = False

    def kill(self) -> None:
        """kill -9; afterwards it is down."""
        assert self.pids
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        self.stop()

    @property
    def redis_url(self) -> str:
        return self._stores.redis_url

    @property
    def database_url(self) -> str:
        return self._stores.database_url

    def copy(self) -> Path:
        """What a Valkey has on disk now: everything it has acknowledged so far."""
        driver: Any = redis.Redis
        with driver.from_url(self.redis_url) as client:
            client.set("copied", 1)
            assert client.execute_command("WAITAOF", 1, 0, 10_000)[0] == 1
        copy = self.folder.with_name(f"{self.folder.name}-copy-{len(list(self.folder.parent.iterdir()))}")
        shutil.copytree(self.folder / "valkey", copy)
        return copy

    def empty(self) -> None:
        """Of a Valkey that is down: it comes back with nothing."""
        shutil.rmtree(self.folder / "valkey")

    @property
    def pids(self) -> tuple[int, ...]:
        running = find_running(self.folder)
        return running.server_pids if running else ()

    def go_back_to(self, copy: Path) -> None:
        """A store that lost what came after the copy: killed, set back, started."""
        self.kill()
        self.empty()
        shutil.copytree(copy, self.folder / "valkey")
        self.start()


@contextmanager
def own_postgres(folder: Path) -> Generator[Server]:
    """Without fsync: nobody pulls the plug here, and a killed process leaves its writes with the kernel."""
    yield from _running(Server(folder, valkey=None, postgres=PostgresOptions(flags=("-c", "fsync=off"))))


@contextmanager
def own_valkey(folder: Path) -> Generator[Server]:
    yield from _running(Server(folder, valkey=ValkeyOptions(binary=bundled_valkey()), postgres=None))


def _running(server: Server) -> Generator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def command(settings: dict[str, str], log: Path, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """A `tideq` process that is killed at the end if it still runs; what it says goes to the log."""
    with log.open("ab") as said:
        process = subprocess.Popen([TIDEQ, *arguments], env=settings, stdout=said, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def finished(settings: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A `tideq` process that ends by itself."""
    return subprocess.run([TIDEQ, *arguments], env=settings, capture_output=True, text=True, timeout=180, check=False)
