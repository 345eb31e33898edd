"""Celery on Redis. Its producer blocks and has no bulk call; results are off, a task is acknowledged when it starts."""

import protocol
from celery import Celery


class CeleryDriver(protocol.Driver):
    distribution, has_async = "celery", False

    def __init__(self, settings: object) -> None:
        super().__init__(settings)
        self.app = Celery("peers", broker=self.settings.redis_url)
        self.app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=self.settings.batch,
            worker_send_task_events=False,
            broker_connection_retry_on_startup=True,
        )
        self.noop = self.app.task(name="noop")(protocol.handle)

    async def submit(self, sent: float) -> None:
        self.noop.apply_async((sent,))

    async def left(self) -> int:
        with self.app.connection_for_read() as connection:
            client = connection.default_channel.client
            return client.llen("celery") + client.hlen("unacked")

    def work(self) -> None:
        pool = f"--pool={self.settings.pool}"
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR")
        self.app.worker_main(["worker", pool, f"--concurrency={self.settings.concurrency}", *quiet])


if __name__ == "__main__":
    protocol.main(CeleryDriver)
