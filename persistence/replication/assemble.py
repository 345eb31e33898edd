"""A replicator with everything it needs, on a store in custody."""

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
        raise ValueError("without DATABASE_URL there is nowhere to replicate to")
    listener = connect_reader(redis_url, store.custodian.identity if store.custodian else None)
    async with contextlib.aclosing(listener):
        replicators = [
            Replicator(
                store.database,
                part,
                OutboxConsumer(store.client, listener, part.keys),
                part.settings.partition,
                on_batch,
                linger_ms,
            )
            for part in store.engine.parts
        ]
        yield replicators[0] if len(replicators) == 1 else Replicators(replicators)


class Replicators:
    """One a partition: those of several processes share the partitions, since each works under its own lock."""

    def __init__(self, parts: Sequence[Replicator]) -> None:
        self._parts = parts

    async def run_for_ever(self, duties: Duties | None = None) -> None:
        shared = duties or Duties()
        await run_all(*(part.run_for_ever(shared) for part in self._parts))
