"""The background duties of the service; each runs as long as its process."""

import contextlib
import sys
from collections.abc import Generator
from functools import partial

from tideq.api.settings import ServiceSettings
from tideq.persistence.dead_letters.alerts import PatternAlerts
from tideq.persistence.recount import Recount
from tideq.persistence.recovery.open_store import OpenStore, replicators_of
from tideq.persistence.replication.replicator import BatchMeter
from tideq.persistence.schema.clocks import Clocks, store_instants
from tideq.persistence.schema.partitions import Partitions
from tideq.queue_core.background import run_all
from tideq.queue_core.duties import Duties
from tideq.queue_core.outbox.monitor_cursor import MonitorCursor
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.memory import MemoryWatch
from tideq.queue_core.telemetry.spans import Tracing
from tideq.workers.monitor.dead_letter_alerts import alert_for_ever
from tideq.workers.monitor.journal.follower import Follower, TransitionListener
from tideq.workers.monitor.journal.lifecycle_spans import LifecycleSpans
from tideq.workers.monitor.journal.transition_log import LineWriter, TransitionLog
from tideq.workers.monitor.prober import Prober
from tideq.workers.monitor.pruner import prune_for_ever
from tideq.workers.monitor.recounter import recount_for_ever
from tideq.workers.monitor.sweeper import sweep_for_ever
from tideq.workers.monitor.task_metrics import TaskMetrics


async def sweep(store: OpenStore, settings: ServiceSettings, duties: Duties, _tracing: Tracing | None = None) -> None:
    parts = store.engine.parts
    watch = MemoryWatch(store.client, [part.scripts for part in parts], settings.queue.admission.max_memory_ratio)
    await sweep_for_ever([part.queue for part in parts], watch, duties)


async def monitor(store: OpenStore, settings: ServiceSettings, duties: Duties, tracing: Tracing | None = None) -> None:
    await run_all(
        sweep(store, settings, duties),
        _probe(store, settings, duties),
        _prune(store, settings, duties),
        _alert_on_dead_letters(store, duties),
        _recount(store, duties),
        _follow(store, settings, duties, tracing),
    )


async def replicate(store: OpenStore, settings: ServiceSettings, duties: Duties) -> None:
    meter = BatchMeter(duties.counters)
    linger_ms = settings.history.linger_ms
    async with replicators_of(store, settings.redis_url, meter.note, linger_ms) as replicators:
        await replicators.run_for_ever(duties)


async def run_all_duties(
    store: OpenStore, settings: ServiceSettings, duties: Duties, tracing: Tracing | None = None
) -> None:
    """All duties, for an installation that runs one process."""
    await run_all(monitor(store, settings, duties, tracing), replicate(store, settings, duties))


async def _probe(store: OpenStore, settings: ServiceSettings, duties: Duties) -> None:
    counters = duties.counters

    def count(outcome: str) -> None:
        counters.add("tideq_worker_probes_total", outcome)

    counters.declare("tideq_worker_probes_total", ("well",), ("failed",), ("refused",))
    probing = settings.queue.probing
    await Prober(store.engine.fleet, probing.allowed_cidrs, count).probe_for_ever(probing.interval_ms / 1000, duties)


async def _follow(store: OpenStore, settings: ServiceSettings, duties: Duties, tracing: Tracing | None) -> None:
    counters = duties.counters
    counters.observe_value("tideq_spans_dropped_total", lambda: tracing.lost_count if tracing else 0)
    with _open_listeners(settings.queue, tracing) as listeners:
        meters = [TaskMetrics(counters, settings.queue.priorities), *listeners]
        followers = [
            Follower(MonitorCursor(store.client, part.scripts, part.keys), meters) for part in store.engine.parts
        ]
        counters.observe_value("tideq_journal_gaps_total", lambda: sum(follower.gap_count for follower in followers))
        counters.observe_value(
            "tideq_journal_skipped_total", lambda: sum(follower.skipped_count for follower in followers)
        )
        await run_all(*(follower.follow_for_ever(duties) for follower in followers))


@contextlib.contextmanager
def _open_listeners(settings: QueueSettings, tracing: Tracing | None) -> Generator[list[TransitionListener]]:
    """The journal's listeners besides the metrics: the log and, where tracing is on, lifecycle spans."""
    listeners = list[TransitionListener]()
    with contextlib.ExitStack() as opened:
        if tracing is not None:
            listeners.append(LifecycleSpans(tracing, settings.queue_name))
        if settings.telemetry.logs_transitions:
            writer = opened.enter_context(LineWriter(sys.stderr))
            listeners.append(TransitionLog(writer.write, readable=sys.stderr.isatty()))
        yield listeners


async def _alert_on_dead_letters(store: OpenStore, duties: Duties) -> None:
    if store.database is not None:
        await alert_for_ever(PatternAlerts(store.database), duties)


async def _recount(store: OpenStore, duties: Duties) -> None:
    if store.database is not None:
        await recount_for_ever(Recount(store.database, store.client, store.engine), duties)


async def _prune(store: OpenStore, settings: ServiceSettings, duties: Duties) -> None:
    if store.database is None:
        return
    latest: list[Clocks] = []
    duties.counters.observe_value(
        "tideq_clock_difference_seconds", lambda: latest[0].difference_ms / 1000 if latest else 0.0
    )

    def note(clocks: Clocks) -> None:
        latest[:] = [clocks]

    instants = partial(store_instants, store.unguarded_client, store.engine)
    partitions = Partitions(store.database, settings.history)
    await prune_for_ever(partitions, settings.queue.retention.dead_letter_ttl_ms, duties, instants, note)
