"""The floor of the transport: redis-py pops a Redis list, without acknowledgement, state or retries."""

import protocol
import redis
import redis.asyncio

TASK = b"x" * 40


class Floor(protocol.Driver):
    distribution = "redis"

    async def open(self) -> None:
        self.redis = redis.asyncio.from_url(self.settings.redis_url)

    async def submit(self, sent: float) -> None:
        await self.redis.lpush("floor", str(sent) if sent else TASK)

    async def submit_many(self, count: int) -> None:
        await self.redis.lpush("floor", *[TASK] * count)

    async def left(self) -> int:
        return await self.redis.llen("floor")

    def work(self) -> None:
        client = redis.from_url(self.settings.redis_url)
        while True:
            if popped := client.brpop(["floor"], 1):
                protocol.handle(0.0 if popped[1] == TASK else float(popped[1]))


if __name__ == "__main__":
    protocol.main(Floor)
