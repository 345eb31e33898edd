"""Assembles the engine on one store: the objects that the API, the monitor and the tests use."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tideq.queue_core.attempts import Attempts
from tideq.queue_core.controls import Controls
from tideq.queue_core.fleet import Fleet
from tideq.queue_core.inspector import Inspector
from tideq.queue_core.partition import Partition
from tideq.queue_core.partition_views import PartitionViews
from tideq.queue_core.partitioning.admission import Admissions
from tideq.queue_core.partitioning.circuit_totals import CircuitTotals
from tideq.queue_core.partitioning.claim_merge import ClaimMerger
from tideq.queue_core.partitioning.ledger import Ledger
from tideq.queue_core.partitioning.partition_sampler import PartitionSampler
from tideq.queue_core.partitioning.partition_settings import settings_of
from tideq.queue_core.partitioning.queue_partitions import QueuePartitions
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.partitioning.submit_router import SubmitRouter
from tideq.queue_core.partitioning.worker_sync import WorkerSync
from tideq.queue_core.queue import Queue
from tideq.queue_core.scripts.constants import scripts_for
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreTime
from tideq.queue_core.submission import Submissions
from tideq.queue_core.task_id import TaskIds


@dataclass(frozen=True)
class Engine:
    scripts: Scripts
    """Scripts of the first partition."""
    keys: Keys
    settings: QueueSettings
    queue: Queue
    attempts: Attempts
    fleet: Fleet
    controls: Controls
    insight: Inspector
    ledger: Ledger
    """Limits of the whole queue, if it has several partitions."""
    members: tuple["Engine", ...] = ()

    @property
    def parts(self) -> tuple["Engine", ...]:
        """One engine for each partition; with one partition, the engine itself."""
        return self.members or (self,)

    @property
    def partition(self) -> Partition:
        """The first partition."""
        return self.queue.parts[0]


def assemble_engine(client: Any, settings: QueueSettings, *, sends_flags: bool = True) -> Engine:
    """`sends_flags=False` is for stores whose Lua does not accept a `#!lua` line (fakeredis)."""
    time = StoreTime()
    ids = TaskIds(clock_ms=time.now_ms)
    count = settings.partition_count
    own_settings = [settings] if count == 1 else [settings_of(settings, each) for each in range(count)]
    scripts = [scripts_for(client, each, sends_flags=sends_flags) for each in own_settings]
    parts = [Partition(*each, time, ids) for each in zip(scripts, own_settings, strict=True)]
    urgency_of = Submissions(settings, ids).urgency_of
    if count == 1:
        return _engine(scripts, parts, settings, urgency_of)
    members = [
        _engine([own_scripts], [part], own, urgency_of)
        for own_scripts, part, own in zip(scripts, parts, own_settings, strict=True)
    ]
    return _engine(scripts, parts, settings, urgency_of, tuple(members))


def _engine(
    scripts: Sequence[Scripts],
    parts: Sequence[Partition],
    settings: QueueSettings,
    urgency_of: Callable[[str | None], int],
    members: tuple[Engine, ...] = (),
) -> Engine:
    partitions = QueuePartitions(scripts, Routing(settings.partitions))
    health, ledger, worker_sync = partitions.health, Ledger(scripts[0], len(parts)), WorkerSync(partitions)
    admissions = Admissions(parts, health, ledger, settings.admission, urgency_of)
    sampler = PartitionSampler(len(parts), settings.leases.heartbeat_timeout_ms / 6_000)
    circuits = CircuitTotals(parts, health, settings.circuit)
    controls = Controls(partitions)
    queue = Queue(
        parts,
        partitions,
        SubmitRouter(parts, partitions.routing, health, admissions),
        ClaimMerger(parts, health, worker_sync, sampler, ledger, circuits),
        controls,
    )
    return Engine(
        scripts=scripts[0],
        keys=Keys(settings.queue_name, settings.partition),
        settings=settings,
        queue=queue,
        attempts=Attempts(partitions, settings),
        fleet=Fleet(partitions, worker_sync),
        controls=controls,
        insight=Inspector([PartitionViews(each) for each in scripts], parts, partitions, ledger),
        ledger=ledger,
        members=members,
    )
