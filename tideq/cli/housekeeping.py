"""What the service does beside answering, each duty for as long as the process runs."""

from functools import partial

from tideq.api.settings import ServiceSettings
from tideq.cli.telling import telling
from tideq.persistence.dead_letters.pattern_news import PatternWatch
from tideq.persistence.recount import Recount
from tideq.persistence.recovery.kept_store import KeptStore
from tideq.persistence.replication.batch_meter import BatchMeter
from tideq.persistence.replication.replicating import replicator_on
from tideq.persistence.schema.clocks import Clocks, store_instants
from tideq.persistence.schema.partitions import Partitions
from tideq.queue_core.background import together
from tideq.queue_core.duties import Duties
from tideq.queue_core.engine.journal import JournalStore
from tideq.queue_core.engine.memory import MemoryWatch
from tideq.queue_core.tracing import Tracing
from tideq.workers.monitor.alarm import sound_for_ever
from tideq.workers.monitor.flow import FlowMeter
from tideq.workers.monitor.journal.follower import Follower
from tideq.workers.monitor.prober import Prober
from tideq.workers.monitor.pruner import prune_for_ever
from tideq.workers.monitor.recounter import recount_for_ever
from tideq.workers.monitor.sweeper import sweep_for_ever


async def sweep(store: KeptStore, settings: ServiceSettings, duties: Duties, _tracing: Tracing | None = None) -> None:
    parts = store.engine.parts
    watch = MemoryWatch(store.client, [part.scripts for part in parts], settings.queue.admission.max_memory_ratio)
    await sweep_for_ever([part.queue for part in parts], watch, duties)


async def monitor(store: KeptStore, settings: ServiceSettings, duties: Duties, tracing: Tracing | None = None) -> None:
    await together(
        sweep(store, settings, duties),
        _probe(store, settings, duties),
        _prune(store, settings, duties),
        _sound_alarms(store, duties),
        _recount(store, duties),
        _follow(store, settings, duties, tracing),
    )


async def replicate(store: KeptStore, settings: ServiceSettings, duties: Duties) -> None:
    meter = BatchMeter(duties.counters)
    linger_ms = settings.history.linger_ms
    async with replicator_on(store, settings.redis_url, settings.queue, meter.note, linger_ms) as replicator:
        await replicator.run_for_ever(duties)


async def do_everything(
    store: KeptStore, settings: ServiceSettings, duties: Duties, tracing: Tracing | None = None
) -> None:
    """For those who run one process."""
    await together(monitor(store, settings, duties, tracing), replicate(store, settings, duties))


async def _probe(store: KeptStore, settings: ServiceSettings, duties: Duties) -> None:
    counters = duties.counters

    def count(outcome: str) -> None:
        counters.add("tideq_worker_probes_total", outcome)

    counters.declare("tideq_worker_probes_total", ("well",), ("failed",), ("refused",))
    probing = settings.queue.probing
    await Prober(store.engine.fleet, probing.allowed_cidrs, count).probe_for_ever(probing.interval_ms / 1000, duties)


async def _follow(store: KeptStore, settings: ServiceSettings, duties: Duties, tracing: Tracing | None) -> None:
    counters = duties.counters
    counters.watch("tideq_spans_dropped_total", lambda: tracing.lost_count if tracing else 0)
    with telling(settings.queue, tracing) as listeners:
        meters = [FlowMeter(counters, settings.queue.priorities), *listeners]
        followers = [
            Follower(JournalStore(store.client, part.scripts, part.keys), meters) for part in store.engine.parts
        ]
        counters.watch("tideq_journal_gaps_total", lambda: sum(follower.gap_count for follower in followers))
        counters.watch("tideq_journal_skipped_total", lambda: sum(follower.skipped_count for follower in followers))
        await together(*(follower.follow_for_ever(duties) for follower in followers))


async def _sound_alarms(store: KeptStore, duties: Duties) -> None:
    if store.database is not None:
        await sound_for_ever(PatternWatch(store.database), duties)


async def _recount(store: KeptStore, duties: Duties) -> None:
    if store.database is not None:
        await recount_for_ever(Recount(store.database, store.client, store.engine), duties)


async def _prune(store: KeptStore, settings: ServiceSettings, duties: Duties) -> None:
    if store.database is None:
        return
    seen: list[Clocks] = []
    duties.counters.watch("tideq_clock_difference_seconds", lambda: seen[0].difference_ms / 1000 if seen else 0.0)

    def note(clocks: Clocks) -> None:
        seen[:] = [clocks]

    instants = partial(store_instants, store.plain_client, store.engine)
    partitions = Partitions(store.database, settings.history)
    await prune_for_ever(partitions, settings.queue.retention.dead_letter_ttl_ms, duties, instants, note)
