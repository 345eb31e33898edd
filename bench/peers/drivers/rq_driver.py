"""RQ. Its producer blocks; `enqueue_many` is its bulk call; results are dropped at once."""

import protocol
import redis
from rq import Queue, SimpleWorker

NOOP = "protocol.handle"


class RqDriver(protocol.Driver):
    distribution, has_async = "rq", False

    async def open(self) -> None:
        self.redis = redis.from_url(self.settings.redis_url)
        self.queue = Queue(connection=self.redis)

    async def submit(self, sent: float) -> None:
        self.queue.enqueue(NOOP, sent, result_ttl=0)

    async def submit_many(self, count: int) -> None:
        self.queue.enqueue_many([Queue.prepare_data(NOOP, (0.0,), result_ttl=0) for _ in range(count)])

    async def left(self) -> int:
        return self.queue.count + self.queue.started_job_registry.count

    def work(self) -> None:
        """SimpleWorker starts no process for each task, and is several times as fast as the default worker."""
        connection = redis.from_url(self.settings.redis_url)
        SimpleWorker([Queue(connection=connection)], connection=connection).work(logging_level="ERROR")


if __name__ == "__main__":
    protocol.main(RqDriver)
