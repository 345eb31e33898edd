"""Assembles the replicators of an open store, one for each partition."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.replication.replicator import Replicator
from tideq.persistence.replication.writer import WriteBatch
from tideq.queue_core.background import run_all
from tideq.queue_core.duties import Duties
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.connect import connect_reader


@contextlib.asynccontextmanager
async def replicator_on(
    store: OpenStore,
    redis_url: str,
    settings: QueueSettings,
    on_batch: Callable[[WriteBatch], None] = lambda _: None,
    linger_ms: int = 0,
) -> AsyncGenerator["Replicator | Replicators"]:
    if store.database is None:
        raise ValueError("replication needs DATABASE_URL")
    listener = connect_reader(redis_url, store.guard.identity if store.guard else None)
    async with contextlib.aclosing(listener):
        replicators = [
            Replicator(
                store.database,
                part,
                OutboxConsumer(store.client, part.keys, listener),
                part.settings.partition,
                on_batch,
                linger_ms,
            )
            for part in store.engine.parts
        ]
        yield replicators[0] if len(replicators) == 1 else Replicators(replicators)


class Replicators:
    """A replicator for each partition. Several processes share the partitions: each partition has its own lock."""

    def __init__(self, parts: Sequence[Replicator]) -> None:
        self._parts = parts

    async def run_for_ever(self, duties: Duties | None = None) -> None:
        shared = duties or Duties()
        await run_all(*(part.run_for_ever(shared) for part in self._parts))
