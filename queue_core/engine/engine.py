"""The whole engine on one store: what the API, the monitor and the tests are given."""

from dataclasses import dataclass
from typing import Any

from tideq.queue_core.engine.attempts import Attempts
from tideq.queue_core.engine.clock import StoreTime
from tideq.queue_core.engine.controls import Controls
from tideq.queue_core.engine.fleet import Fleet
from tideq.queue_core.engine.insight import Insight
from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.partitions.attempts import PartitionedAttempts
from tideq.queue_core.engine.partitions.circuits import Circuits
from tideq.queue_core.engine.partitions.claiming import Claiming
from tideq.queue_core.engine.partitions.controls import PartitionedControls
from tideq.queue_core.engine.partitions.fleet import PartitionedFleet
from tideq.queue_core.engine.partitions.health import Health
from tideq.queue_core.engine.partitions.insight import PartitionedInsight
from tideq.queue_core.engine.partitions.ledger import Ledger
from tideq.queue_core.engine.partitions.membership import Membership
from tideq.queue_core.engine.partitions.queue import PartitionedQueue
from tideq.queue_core.engine.partitions.routing import Routing
from tideq.queue_core.engine.partitions.sampling import Sampling
from tideq.queue_core.engine.partitions.settings import settings_of
from tideq.queue_core.engine.policy import scripts_for
from tideq.queue_core.engine.queue import Queue
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task_id import TaskIds


@dataclass(frozen=True)
class Engine:
    scripts: Scripts
    """Of the first partition."""
    keys: Keys
    settings: QueueSettings
    queue: Queue
    attempts: Attempts
    fleet: Fleet
    controls: Controls
    insight: Insight
    ledger: Ledger | None = None
    """Of several partitions: what their limits have let out."""
    members: tuple["Engine", ...] = ()

    @property
    def parts(self) -> tuple["Engine", ...]:
        """One engine for each partition; of one partition, the engine itself."""
        return self.members or (self,)


def assemble_engine(client: Any, settings: QueueSettings, *, sends_flags: bool = True) -> Engine:
    """`sends_flags=False` is for stores whose Lua knows no `#!lua` line (fakeredis)."""
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
        insight=Insight(scripts),
    )


def _joined(members: tuple[Engine, ...], settings: QueueSettings, time: StoreTime, ids: TaskIds) -> Engine:
    scripts, routing, health = members[0].scripts, Routing(settings.partitions), Health(len(members))
    queues, fleets = [each.queue for each in members], [each.fleet for each in members]
    membership = Membership(fleets, health)
    sampling = Sampling(len(members), settings.leases.heartbeat_timeout_ms / 6_000)
    controls = PartitionedControls([each.controls for each in members], health)
    ledger = Ledger(scripts, len(members))
    circuits = Circuits(queues, health, settings.circuit)
    claiming = Claiming(queues, health, membership, sampling, ledger, circuits)
    return Engine(
        scripts=scripts,
        keys=members[0].keys,
        settings=settings,
        queue=PartitionedQueue(queues, routing, health, claiming, controls, ledger, scripts, settings, time, ids),
        attempts=PartitionedAttempts([each.attempts for each in members], queues, routing, health, scripts, settings),
        fleet=PartitionedFleet(fleets, health, membership),
        controls=controls,
        insight=PartitionedInsight([each.insight for each in members], queues, routing, health, ledger, scripts),
        ledger=ledger,
        members=members,
    )
