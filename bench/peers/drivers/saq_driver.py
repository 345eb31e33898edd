"""SAQ on Redis. It has no bulk call without waiting for results; results are not kept."""

import asyncio

import protocol
import uvloop
from saq import Job, Queue, Worker


async def noop(ctx: dict[str, object], *, sent: float) -> None:
    protocol.handle(sent)


class SaqDriver(protocol.Driver):
    distribution = "saq"

    async def open(self) -> None:
        self.queue = Queue.from_url(self.settings.redis_url)
        await self.queue.connect()

    async def submit(self, sent: float) -> None:
        await self.queue.enqueue(Job("noop", kwargs={"sent": sent}, ttl=-1))

    async def left(self) -> int:
        return await self.queue.count("incomplete")

    def work(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        queue = Queue.from_url(self.settings.redis_url)
        await queue.connect()
        await asyncio.create_task(Worker(queue, [noop], concurrency=self.settings.concurrency).start())


if __name__ == "__main__":
    protocol.main(SaqDriver)
