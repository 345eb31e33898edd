"""The stores the suites run on: real servers of three kinds, started by the product's own supervisor, and fakeredis."""

import contextlib
import secrets
import shutil
import socket
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import fakeredis
import redis

from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey
from tideq.queue_core.store.connect import connect

LEAST_PORT, PORT_COUNT = 12_000, 20_000
"""Below what systems choose from: another's connection cannot take a port between being found and being bound."""


class StoreUnderTest(NamedTuple):
    name: str
    url: str
    """Empty for the fake one."""
    partition_count: int = 1

    @property
    def sends_flags(self) -> bool:
        return bool(self.url)

    def client(self) -> Any:
        return connect(self.url) if self.url else fakeredis.FakeAsyncRedis()


@contextmanager
def valkey(folder: Path) -> Generator[StoreUnderTest]:
    with _server(folder, ValkeyOptions(binary=bundled_valkey())) as url:
        yield StoreUnderTest("valkey", url)


@contextmanager
def redis7(folder: Path) -> Generator[StoreUnderTest]:
    with _server(folder, ValkeyOptions(binary=Path(shutil.which("redis-server") or ""))) as url:
        yield StoreUnderTest("redis7", url)


@contextmanager
def cluster(folder: Path) -> Generator[StoreUnderTest]:
    """One node that owns every slot: an access to a key of another slot fails."""
    port = free_port()
    flags = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with _server(folder, ValkeyOptions(binary=bundled_valkey(), port=port, flags=flags)):
        _own_every_slot(redis.Redis(port=port))
        yield StoreUnderTest("cluster", f"redis+cluster://127.0.0.1:{port}")


@contextmanager
def four_partitions(folder: Path) -> Generator[StoreUnderTest]:
    """One plain server that holds a queue of four partitions."""
    with _server(folder, ValkeyOptions(binary=bundled_valkey())) as url:
        yield StoreUnderTest("four_partitions", url, 4)


@contextmanager
def fake(folder: Path) -> Generator[StoreUnderTest]:
    yield StoreUnderTest("fakeredis", "")


STORES: dict[str, Callable[[Path], AbstractContextManager[StoreUnderTest]]] = {
    "valkey": valkey,
    "redis7": redis7,
    "cluster": cluster,
    "four_partitions": four_partitions,
    "fakeredis": fake,
}


def missing(name: str) -> str | None:
    """Why a store cannot be had on this machine, or None."""
    if name == "redis7" and not shutil.which("redis-server"):
        return "no redis-server on PATH (Debian: apt install redis-server, or `make tools`)"
    return None


def _own_every_slot(node: Any) -> None:
    with node:
        node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while b"cluster_state:ok" not in node.execute_command("CLUSTER", "INFO"):
            pass


def free_port() -> int:
    """One that nobody has, and that the system gives to nobody by itself."""
    while True:
        port = LEAST_PORT + secrets.randbelow(PORT_COUNT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def _server(folder: Path, options: ValkeyOptions) -> Generator[str]:
    with EmbeddedStores(folder, valkey=options, postgres=None) as stores:
        yield stores.redis_url
