"""Live events of all partitions in one subscription. Limit: the order is that of each partition, not of all."""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence

from tideq.queue_core.duties import Duties
from tideq.queue_core.outbox.live import LiveEvents, Subscription
from tideq.queue_core.outbox.stream import Event, EventCursor, OutboxStream, joined


class PartitionedLiveEvents(LiveEvents):
    def __init__(self, outboxes: Sequence[OutboxStream], duties: Duties) -> None:
        super().__init__(outboxes[0], duties)
        self._readers = [LiveEvents(outbox, duties) for outbox in outboxes]

    async def __aenter__(self) -> "PartitionedLiveEvents":
        await asyncio.gather(*(reader.__aenter__() for reader in self._readers))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(reader.__aexit__() for reader in self._readers))

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    async def wait_until_reading(self) -> None:
        await asyncio.gather(*(reader.wait_until_reading() for reader in self._readers))

    @property
    def cursor(self) -> EventCursor:
        return joined([reader.newest for reader in self._readers])

    @contextlib.contextmanager
    def subscribe(self, wants: Callable[[Event], bool], max_waiting: int = 1_000) -> Generator[Subscription]:
        subscription = Subscription(wants, max_waiting)
        with contextlib.ExitStack() as stack:
            for reader in self._readers:
                stack.enter_context(reader.forward_to(subscription))
            yield subscription


def live_events_of(outboxes: Sequence[OutboxStream], duties: Duties) -> LiveEvents:
    return LiveEvents(outboxes[0], duties) if len(outboxes) == 1 else PartitionedLiveEvents(outboxes, duties)
