"""Dramatiq on Redis, with threads. Its producer blocks and has no bulk call."""

import threading

import dramatiq
import protocol
from dramatiq.brokers.redis import RedisBroker


class DramatiqDriver(protocol.Driver):
    distribution, has_async = "dramatiq", False

    def __init__(self, settings: object) -> None:
        super().__init__(settings)
        self.broker = RedisBroker(url=self.settings.redis_url)
        dramatiq.set_broker(self.broker)
        self.noop = dramatiq.actor(protocol.handle, actor_name="noop")

    async def submit(self, sent: float) -> None:
        self.noop.send(sent)

    async def left(self) -> int:
        """A message stays in this hash until it is acknowledged."""
        return self.broker.client.hlen("dramatiq:default.msgs")

    def work(self) -> None:
        dramatiq.Worker(self.broker, worker_threads=self.settings.concurrency).start()
        threading.Event().wait()


if __name__ == "__main__":
    protocol.main(DramatiqDriver)
