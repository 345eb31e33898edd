"""arq on Redis. It has no bulk call; results are not kept."""

import arq
import protocol
from arq.connections import RedisSettings


async def noop(ctx: dict[str, object], sent: float) -> None:
    protocol.handle(sent)


class ArqDriver(protocol.Driver):
    distribution = "arq"

    async def open(self) -> None:
        self.pool = await arq.create_pool(RedisSettings.from_dsn(self.settings.redis_url))

    async def submit(self, sent: float) -> None:
        await self.pool.enqueue_job("noop", sent)

    async def left(self) -> int:
        return await self.pool.zcard("arq:queue")

    def work(self) -> None:
        arq.Worker(
            [noop],
            redis_settings=RedisSettings.from_dsn(self.settings.redis_url),
            max_jobs=self.settings.concurrency,
            queue_read_limit=self.settings.batch,
            poll_delay=self.settings.poll_seconds,
            keep_result=0,
            log_results=False,
        ).run()


if __name__ == "__main__":
    protocol.main(ArqDriver)
