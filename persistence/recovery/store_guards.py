"""Store guards of several partitions, perhaps on several servers: each partition is compared with history separately.

A client is trusted once every server behind it was identified and every partition was compared. A partition whose
server is unavailable stays closed, and the others work.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import structlog

from tideq.persistence.database import Database
from tideq.persistence.partition_owner import PartitionOwner
from tideq.persistence.recovery.rebuild import RebuildPlan
from tideq.persistence.recovery.reconcile import Difference
from tideq.persistence.recovery.store_guard import StoreCheck, StoreGuard
from tideq.queue_core.duties import Duty
from tideq.queue_core.engine import Engine
from tideq.queue_core.errors import QueueError, StoreUnavailable
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.connect import identities_of, is_cluster
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.restore import StoreRestore
from tideq.queue_core.store.server_identity import TrustedServers

log = structlog.get_logger(__name__)
OnProgress = Callable[[int, int], None]
SEVERITY_ORDER = (
    StoreCheck.STORE_EMPTY,
    StoreCheck.STORE_BEHIND,
    StoreCheck.FAILED_OVER,
    StoreCheck.HISTORY_BEHIND,
    StoreCheck.FRESH_INSTALL,
    StoreCheck.IN_SYNC,
)
"""The most severe first: the result of several partitions is the most severe of them."""


class StoreGuards:
    """`plain` is an unguarded client; `identity` guards the engine's client."""

    def __init__(self, parts: Sequence[StoreGuard], plain: Any, identity: TrustedServers) -> None:
        self._parts = parts
        self._plain = plain
        self.identity = identity

    @property
    def is_unverified(self) -> bool:
        return self.identity.unverified.is_set()

    async def verify(self) -> StoreCheck:
        """Returns the most severe result. Raises if no partition can be verified; `watch` retries failed partitions."""
        with store_errors():
            found = await identities_of(self._plain)
        checks = await asyncio.gather(*(part.verify() for part in self._parts), return_exceptions=True)
        failures = [each for each in checks if isinstance(each, BaseException)]
        if len(failures) == len(checks) or any(not isinstance(each, QueueError) for each in failures):
            raise failures[0]
        self.identity.trust(*found)
        if failures:
            log.warning("partitions stay closed", count=len(failures), error=str(failures[0]))
            self.identity.unverified.set()
        return _worst([each for each in checks if isinstance(each, StoreCheck)])

    async def watch(self, duty: Duty) -> None:
        """Runs until cancelled: verifies the stores whenever one is unverified. Unverified partitions stay closed."""
        while True:
            if not self.is_unverified:
                duty.succeeded()
            with duty.waiting():
                await self.identity.unverified.wait()
            check = await self.verify()
            if self.is_unverified:
                raise StoreUnavailable("some partitions stay closed: they could not be compared with history")
            log.warning("store verified", check=check.name)

    async def rebuild(self) -> str:
        """Rebuilds one partition after the other, so that a task in another partition is not restored twice."""
        return ", ".join([await part.rebuild() for part in self._parts])

    async def reconcile(self) -> str:
        """Reconciles the last partition first: a chosen id may also lie in the first, and belongs where it names."""
        epochs = [await part.reconcile() for part in reversed(self._parts)]
        return ", ".join(reversed(epochs))

    async def plan(self) -> RebuildPlan:
        """Returns the plan of the first partition, which may hold any task, with the parked events of all."""
        plans = [await part.plan() for part in self._parts]
        return plans[0]._replace(parked_count=sum(plan.parked_count for plan in plans))

    async def check(self) -> StoreCheck:
        return _worst([await part.check() for part in self._parts])

    async def is_behind(self) -> bool:
        return any([await part.is_behind() for part in self._parts])

    async def differences(self) -> AsyncGenerator[Difference]:
        """Yields each difference once: every partition that may have a missing task reports it."""
        yielded: set[str] = set()
        for part in reversed(self._parts):
            async for each in part.differences():
                if each.task_id not in yielded:
                    yielded.add(each.task_id)
                    yield each


def store_guards_of(
    database: Database,
    plain: Any,
    queue: QueueSettings,
    engine: Engine,
    identity: TrustedServers,
    on_progress: OnProgress = lambda done, total: None,
) -> StoreGuard | StoreGuards:
    """Returns the guard of one partition on one server, or the guards of all partitions."""
    if len(engine.parts) == 1 and not is_cluster(plain):
        return StoreGuard(database, StoreRestore(plain, queue), queue, engine.scripts, identity, on_progress)
    restorations = [StoreRestore(plain, part.settings) for part in engine.parts]
    parts = [
        StoreGuard(database, own, part.settings, part.scripts, TrustedServers(), on_progress, owner)
        for own, part, owner in zip(restorations, engine.parts, _owners_of(queue, restorations), strict=True)
    ]
    for part in engine.parts:
        part.scripts.on_replaced = identity.unverified.set
    return StoreGuards(parts, plain, identity)


def _owners_of(queue: QueueSettings, restorations: Sequence[StoreRestore]) -> list[PartitionOwner]:
    routing = Routing(queue.partitions)
    return [
        PartitionOwner(number, routing, {other: each for other, each in enumerate(restorations) if other != number})
        for number in range(len(restorations))
    ]


def _worst(checks: Sequence[StoreCheck]) -> StoreCheck:
    return min(checks, key=SEVERITY_ORDER.index)
