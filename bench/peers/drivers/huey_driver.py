"""huey on Redis, with threads. Its producer blocks and has no bulk call; it has no acknowledgement: taken is done."""

import protocol
from huey import RedisHuey


class HueyDriver(protocol.Driver):
    distribution, has_async = "huey", False

    def __init__(self, settings: object) -> None:
        super().__init__(settings)
        self.huey = RedisHuey("peers", url=self.settings.redis_url, results=False)
        self.noop = self.huey.task(name="noop")(protocol.handle)

    async def submit(self, sent: float) -> None:
        self.noop(sent)

    async def left(self) -> int:
        return self.huey.storage.queue_size()

    def work(self) -> None:
        self.huey.create_consumer(workers=self.settings.concurrency, worker_type="thread", periodic=False).run()


if __name__ == "__main__":
    protocol.main(HueyDriver)
