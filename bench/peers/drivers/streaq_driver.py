"""streaq, a Redis stream. `enqueue_many` is its bulk call; results are not kept."""

import protocol
from streaq import Worker


class StreaqDriver(protocol.Driver):
    distribution = "streaq"

    def __init__(self, settings: object) -> None:
        super().__init__(settings)
        self.worker = Worker(
            redis_url=self.settings.redis_url,
            concurrency=self.settings.concurrency,
            prefetch=self.settings.batch,
            anyio_kwargs={"use_uvloop": True},
        )

        @self.worker.task(ttl=0, silent=True)
        async def noop(sent: float) -> None:
            protocol.handle(sent)

        self.noop = noop

    async def open(self) -> None:
        await self.worker.__aenter__()

    async def submit(self, sent: float) -> None:
        await self.noop.enqueue(sent)

    async def submit_many(self, count: int) -> None:
        await self.worker.enqueue_many([self.noop.enqueue(0.0) for _ in range(count)])

    async def left(self) -> int:
        """An entry leaves the stream when its task is acknowledged."""
        return await self.worker.queue_size()

    def work(self) -> None:
        self.worker.run_sync()


if __name__ == "__main__":
    protocol.main(StreaqDriver)
