"""Assembles the engine on one store: the objects that the API, the monitor and the tests use."""

from dataclasses import dataclass
from typing import Any

from tideq.queue_core.attempts import Attempts
from tideq.queue_core.controls import Controls
from tideq.queue_core.fleet import Fleet
from tideq.queue_core.inspector import Inspector
from tideq.queue_core.partitioning.circuit_totals import CircuitTotals
from tideq.queue_core.partitioning.claim_merge import ClaimMerger
from tideq.queue_core.partitioning.ledger import Ledger
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.partition_sampler import PartitionSampler
from tideq.queue_core.partitioning.partition_settings import settings_of
from tideq.queue_core.partitioning.partitioned_attempts import PartitionedAttempts
from tideq.queue_core.partitioning.partitioned_controls import PartitionedControls
from tideq.queue_core.partitioning.partitioned_fleet import PartitionedFleet
from tideq.queue_core.partitioning.partitioned_inspector import PartitionedInspector
from tideq.queue_core.partitioning.partitioned_queue import PartitionedQueue
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.partitioning.worker_sync import WorkerSync
from tideq.queue_core.queue import Queue
from tideq.queue_core.scripts.constants import scripts_for
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreTime
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
    ledger: Ledger | None = None
    """Shared limits of several partitions; None with one partition."""
    members: tuple["Engine", ...] = ()

    @property
    def parts(self) -> tuple["Engine", ...]:
        """One engine for each partition; with one partition, the engine itself."""
        return self.members or (self,)


def assemble_engine(client: Any, settings: QueueSettings, *, sends_flags: bool = True) -> Engine:
    """`sends_flags=False` is for stores whose Lua does not accept a `#!lua` line (fakeredis)."""
    time = StoreTime()
    ids = TaskIds(clock_ms=time.now_ms)
    if settings.partition_count == 1:
        return _single(client, settings, time, ids, sends_flags=sends_flags)
    members = (
        _single(client, settings_of(settings, each), time, ids, sends_flags=sends_flags)
        for each in range(settings.partition_count)
    )
    return _joined(tuple(members), settings, time, ids)


def _single(client: Any, settings: QueueSettings, time: StoreTime, ids: TaskIds, *, sends_flags: bool) -> Engine:
    scripts = scripts_for(client, settings, sends_flags=sends_flags)
    return Engine(
        scripts=scripts,
        keys=Keys(settings.queue_name, settings.partition),
        settings=settings,
        queue=Queue(scripts, settings, time, ids),
        attempts=Attempts(scripts, settings),
        fleet=Fleet(scripts),
        controls=Controls(scripts),
        insight=Inspector(scripts),
    )


def _joined(members: tuple[Engine, ...], settings: QueueSettings, time: StoreTime, ids: TaskIds) -> Engine:
    scripts, routing, health = members[0].scripts, Routing(settings.partitions), PartitionHealth(len(members))
    queues, fleets = [each.queue for each in members], [each.fleet for each in members]
    membership = WorkerSync(fleets, health)
    sampling = PartitionSampler(len(members), settings.leases.heartbeat_timeout_ms / 6_000)
    controls = PartitionedControls([each.controls for each in members], health)
    ledger = Ledger(scripts, len(members))
    circuits = CircuitTotals(queues, health, settings.circuit)
    claiming = ClaimMerger(queues, health, membership, sampling, ledger, circuits)
    return Engine(
        scripts=scripts,
        keys=members[0].keys,
        settings=settings,
        queue=PartitionedQueue(queues, routing, health, claiming, controls, ledger, scripts, settings, time, ids),
        attempts=PartitionedAttempts([each.attempts for each in members], queues, routing, health, scripts, settings),
        fleet=PartitionedFleet(fleets, health, membership),
        controls=controls,
        insight=PartitionedInspector([each.insight for each in members], queues, routing, health, ledger, scripts),
        ledger=ledger,
        members=members,
    )
