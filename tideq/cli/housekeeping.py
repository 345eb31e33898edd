"""What the service does beside answering, each duty for as long as the process runs."""

from functools import partial

from tideq.api.settings import ServiceSettings
from tideq.cli.telling import telling
from tideq.persistence.dead_letters.pattern_news import PatternWatch
from tideq.persistence.recovery.kept_store import KeptStore
from tideq.persistence.replication.batch_meter import BatchMeter
from tideq.persistence.replication.replicating import replicator_on
from tideq.persistence.schema.clocks import Clocks, store_instants
from tideq.persistence.schema.partitions import Partitions
from tideq.queue_core.background import together
from tideq.queue_core.engine.journal import JournalStore
from tideq.queue_core.engine.memory import MemoryWatch
from tideq.queue_core.readings import Counters
from tideq.queue_core.tracing import Tracing
from tideq.workers.monitor.alarm import sound_for_ever
from tideq.workers.monitor.flow import FlowMeter
from tideq.workers.monitor.journal.follower import Follower
from tideq.workers.monitor.prober import Prober
from tideq.workers.monitor.pruner import prune_for_ever
from tideq.workers.monitor.sweeper import sweep_for_ever


async def sweep(
    store: KeptStore, settings: ServiceSettings, _counters: Counters, _tracing: Tracing | None = None
) -> None:
    scripts = [part.scripts for part in store.engine.parts]
    watch = MemoryWatch(store.client, scripts, settings.queue.admission.max_memory_ratio)
    await sweep_for_ever(store.engine.queue, watch)


async def monitor(
    store: KeptStore, settings: ServiceSettings, counters: Counters, tracing: Tracing | None = None
) -> None:
    await together(
        sweep(store, settings, counters),
        _probe(store, settings, counters),
        _prune(store, settings, counters),
        _sound_alarms(store, counters),
        _follow(store, settings, counters, tracing),
    )


async def replicate(store: KeptStore, settings: ServiceSettings, counters: Counters) -> None:
    meter = BatchMeter(counters)
    linger_ms = settings.history.linger_ms
    async with replicator_on(store, settings.redis_url, settings.queue, meter.note, linger_ms) as replicator:
        await replicator.run_for_ever()


async def do_everything(
    store: KeptStore, settings: ServiceSettings, counters: Counters, tracing: Tracing | None = None
) -> None:
    """For those who run one process."""
    await together(monitor(store, settings, counters, tracing), replicate(store, settings, counters))


async def _probe(store: KeptStore, settings: ServiceSettings, counters: Counters) -> None:
    def count(outcome: str) -> None:
        counters.add("tideq_worker_probes_total", outcome)

    counters.declare("tideq_worker_probes_total", ("well",), ("failed",), ("refused",))
    probing = settings.queue.probing
    await Prober(store.engine.fleet, probing.allowed_cidrs, count).probe_for_ever(probing.interval_ms / 1000)


async def _follow(store: KeptStore, settings: ServiceSettings, counters: Counters, tracing: Tracing | None) -> None:
    counters.watch("tideq_spans_dropped_total", lambda: tracing.lost_count if tracing else 0)
    with telling(settings.queue, tracing) as listeners:
        meters = [FlowMeter(counters), *listeners]
        followers = [
            Follower(JournalStore(store.client, part.scripts, part.keys), meters) for part in store.engine.parts
        ]
        counters.watch("tideq_journal_gaps_total", lambda: sum(follower.gap_count for follower in followers))
        counters.watch("tideq_journal_skipped_total", lambda: sum(follower.skipped_count for follower in followers))
        await together(*(follower.follow_for_ever() for follower in followers))


async def _sound_alarms(store: KeptStore, counters: Counters) -> None:
    if store.database is not None:
        await sound_for_ever(PatternWatch(store.database), counters)


async def _prune(store: KeptStore, settings: ServiceSettings, counters: Counters) -> None:
    if store.database is None:
        return
    seen: list[Clocks] = []
    counters.watch("tideq_clock_difference_seconds", lambda: seen[0].difference_ms / 1000 if seen else 0.0)

    def note(clocks: Clocks) -> None:
        seen[:] = [clocks]

    instants = partial(store_instants, store.plain_client, store.engine)
    partitions = Partitions(store.database, settings.history)
    await prune_for_ever(partitions, settings.queue.retention.dead_letter_ttl_ms, instants, note)
