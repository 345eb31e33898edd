"""What the service does beside answering, each duty for as long as the process runs."""

import asyncio

from tideq.api.settings import ServiceSettings
from tideq.persistence.kept_store import KeptStore
from tideq.persistence.partitions import Partitions
from tideq.persistence.replicating import replicator_on
from tideq.queue_core.engine.memory import MemoryWatch
from tideq.workers.monitor.prober import Prober
from tideq.workers.monitor.pruner import prune_for_ever
from tideq.workers.monitor.sweeper import sweep_for_ever


async def sweep(store: KeptStore, settings: ServiceSettings) -> None:
    watch = MemoryWatch(store.client, store.engine.scripts, settings.queue.admission.max_memory_ratio)
    await sweep_for_ever(store.engine.queue, watch)


async def monitor(store: KeptStore, settings: ServiceSettings) -> None:
    await asyncio.gather(sweep(store, settings), _probe(store, settings), _prune(store, settings))


async def replicate(store: KeptStore, settings: ServiceSettings) -> None:
    async with replicator_on(store, settings.redis_url, settings.queue) as replicator:
        await replicator.run_for_ever()


async def do_everything(store: KeptStore, settings: ServiceSettings) -> None:
    """For those who run one process."""
    await asyncio.gather(monitor(store, settings), replicate(store, settings))


async def _probe(store: KeptStore, settings: ServiceSettings) -> None:
    probing = settings.queue.probing
    await Prober(store.engine.fleet, probing.allowed_cidrs).probe_for_ever(probing.interval_ms / 1000)


async def _prune(store: KeptStore, settings: ServiceSettings) -> None:
    if store.database is not None:
        partitions = Partitions(store.database, settings.history)
        await prune_for_ever(partitions, settings.queue.retention.dead_letter_ttl_ms)
