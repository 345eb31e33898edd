"""TideQ: its Python client against a running service. Its worker is `tideq worker` with the handlers of this module."""

import os
import sys

import protocol

from tideq import AsyncClient, task
from tideq.client import NewTask
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.connect import connect

QUEUE = Keys("bench").key("queue")
"""The sorted set of the queue that `bench.http.processes` configures."""


@task(name="noop")
async def noop(sent: float = 0.0) -> None:
    protocol.handle(sent)


class TideqDriver(protocol.Driver):
    distribution = "tideq"

    async def open(self) -> None:
        self.client = AsyncClient(self.settings.service_url)
        self.store = connect(self.settings.redis_url)

    async def submit(self, sent: float) -> None:
        await self.client.submit("noop", {"sent": sent})

    async def submit_many(self, count: int) -> None:
        await self.client.submit_many(NewTask("noop", {"sent": 0.0}) for _ in range(count))

    async def left(self) -> int:
        """Every live task is a member of the sorted set. Read from the store, as for all peers."""
        return await self.store.zcard(QUEUE)

    def work(self) -> None:
        at = ("--url", self.settings.service_url, "--concurrency", str(self.settings.concurrency))
        command = [sys.executable, "-m", "tideq.cli", "worker", *at, "--handlers", "tideq_driver"]
        os.execv(sys.executable, command)  # noqa: S606 - replaces this process, so that the worker's CPU counts here


if __name__ == "__main__":
    protocol.main(TideqDriver)
