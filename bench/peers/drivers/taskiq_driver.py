"""taskiq on a Redis stream, with the broker that acknowledges. It has no bulk call; results are off."""

import asyncio

import protocol
import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker


class TaskiqDriver(protocol.Driver):
    distribution = "taskiq"

    def __init__(self, settings: object) -> None:
        super().__init__(settings)
        self.broker = RedisStreamBroker(
            self.settings.redis_url, xread_count=self.settings.batch, consumer_id="0", max_connection_pool_size=200
        )
        self.noop = self.broker.register_task(_noop, task_name="noop")

    async def open(self) -> None:
        await self.broker.startup()

    async def submit(self, sent: float) -> None:
        await self.noop.kiq(sent)

    async def left(self) -> int:
        """The group's unread messages, and those read but not acknowledged."""
        from redis.asyncio import Redis

        (group,) = await Redis(connection_pool=self.broker.connection_pool).xinfo_groups("taskiq")
        return (group["lag"] or 0) + group["pending"]

    def work(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        concurrency, prefetch = self.settings.concurrency, self.settings.batch
        self.broker.is_worker_process = True
        await asyncio.create_task(
            run_receiver_task(
                self.broker, max_async_tasks=concurrency, max_prefetch=prefetch, validate_params=False, run_startup=True
            )
        )


async def _noop(sent: float) -> None:
    protocol.handle(sent)


if __name__ == "__main__":
    protocol.main(TaskiqDriver)
