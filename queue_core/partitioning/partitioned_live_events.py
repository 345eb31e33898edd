"""One reader for the streams of all partitions: a subscription hears them all, each in its own order."""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Sequence

from tideq.queue_core.duties import Duties
from tideq.queue_core.outbox.stream import Event, Outbox
from tideq.queue_core.outbox.live import OutboxReader, Subscription
from tideq.queue_core.outbox.event_cursor import Places, joined


class PartitionedOutboxReader(OutboxReader):
    def __init__(self, outboxes: Sequence[Outbox], duties: Duties) -> None:
        super().__init__(outboxes[0], duties)
        self._readers = [OutboxReader(outbox, duties) for outbox in outboxes]

    async def __aenter__(self) -> "PartitionedOutboxReader":
        await asyncio.gather(*(reader.__aenter__() for reader in self._readers))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(reader.__aexit__() for reader in self._readers))

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    async def reading(self) -> None:
        await asyncio.gather(*(reader.reading() for reader in self._readers))

    @property
    def places(self) -> Places:
        return joined([reader.newest for reader in self._readers])

    @contextlib.contextmanager
    def subscribe(self, wants: Callable[[Event], bool], max_waiting: int = 1_000) -> Generator[Subscription]:
        subscription = Subscription(wants, max_waiting)
        with contextlib.ExitStack() as stack:
            for reader in self._readers:
                stack.enter_context(reader.passing_on(subscription))
            yield subscription


def outbox_reader(outboxes: Sequence[Outbox], duties: Duties) -> OutboxReader:
    return OutboxReader(outboxes[0], duties) if len(outboxes) == 1 else PartitionedOutboxReader(outboxes, duties)
