"""A replicator with everything it needs, on a store in custody."""

import contextlib
from collections.abc import AsyncGenerator, Callable

from tideq.persistence.recovery.kept_store import KeptStore
from tideq.persistence.replication.replicator import Replicator
from tideq.persistence.replication.writer import Batch
from tideq.queue_core.engine.feed import Feed
from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.store import connect_listener
from tideq.queue_core.settings import QueueSettings


@contextlib.asynccontextmanager
async def replicator_on(
    store: KeptStore, redis_url: str, settings: QueueSettings, on_batch: Callable[[Batch], None] = lambda _: None
) -> AsyncGenerator[Replicator]:
    if store.database is None:
        raise ValueError("without DATABASE_URL there is nowhere to replicate to")
    listener = connect_listener(redis_url, store.custodian.identity if store.custodian else None)
    async with contextlib.aclosing(listener):
        feed = Feed(store.client, listener, Keys(settings.queue_name, settings.partition))
        yield Replicator(store.database, store.engine, feed, settings.partition, on_batch)
