"""Custody of several partitions, perhaps on several servers: each is compared with history by itself.

A connection is let in once every server behind it was asked who it is and every partition it may have was compared.
A partition whose server is away stays closed, and the others work.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import structlog

from tideq.persistence.database import Database
from tideq.persistence.partition_owner import PartitionOwner
from tideq.persistence.recovery.rebuild import Plan
from tideq.persistence.recovery.reconcile import Difference
from tideq.persistence.recovery.store_guard import StoreCheck, StoreGuard
from tideq.queue_core.duties import Duty
from tideq.queue_core.engine import Engine
from tideq.queue_core.errors import QueueError, StoreUnavailable
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.connect import identities_of, is_cluster, store_errors
from tideq.queue_core.store.restore import StoreRestore
from tideq.queue_core.store.server_identity import TrustedServers

log = structlog.get_logger(__name__)
OnProgress = Callable[[int, int], None]
GRAVITY = (
    StoreCheck.REBUILD,
    StoreCheck.RECONCILE,
    StoreCheck.TAKEN_OVER,
    StoreCheck.ADOPT,
    StoreCheck.NEW,
    StoreCheck.SOUND,
)
"""Of several verdicts the first of these speaks for all."""


class StoreGuards:
    """`plain` is a client that no identity guards; `identity` guards the one that the engine uses."""

    def __init__(self, parts: Sequence[StoreGuard], plain: Any, identity: TrustedServers) -> None:
        self._parts = parts
        self._plain = plain
        self.identity = identity

    @property
    def is_unverified(self) -> bool:
        return self.identity.doubt.is_set()

    async def verify(self) -> StoreCheck:
        """Raises where no partition can be settled; what is left over is tried again by `watch`."""
        with store_errors():
            found = await identities_of(self._plain)
        verdicts = await asyncio.gather(*(part.verify() for part in self._parts), return_exceptions=True)
        failures = [each for each in verdicts if isinstance(each, BaseException)]
        if len(failures) == len(verdicts) or any(not isinstance(each, QueueError) for each in failures):
            raise failures[0]
        self.identity.trust(*found)
        if failures:
            log.warning("partitions stay closed", count=len(failures), error=str(failures[0]))
            self.identity.doubt.set()
        return _gravest([each for each in verdicts if isinstance(each, StoreCheck)])

    async def watch(self, duty: Duty) -> None:
        """For ever: whenever a store is in doubt, settle it. What is not settled stays closed."""
        while True:
            if not self.is_unverified:
                duty.succeeded()
            with duty.waiting():
                await self.identity.doubt.wait()
            verdict = await self.verify()
            if self.is_unverified:
                raise StoreUnavailable("some partitions stay closed: they could not be compared with history")
            log.warning("store settled", verdict=verdict.name)

    async def rebuild(self) -> str:
        """One after the other: what lies elsewhere is not put back twice."""
        return ", ".join([await part.rebuild() for part in self._parts])

    async def reconcile(self) -> str:
        """From the last on: a chosen id may lie in the first as well, and goes back where it says itself."""
        epochs = [await part.reconcile() for part in reversed(self._parts)]
        return ", ".join(reversed(epochs))

    async def plan(self) -> Plan:
        """Any task may lie in the first partition, which therefore counts for all; only parked events are its own."""
        plans = [await part.plan() for part in self._parts]
        return plans[0]._replace(parked_count=sum(plan.parked_count for plan in plans))

    async def verdict(self) -> StoreCheck:
        return _gravest([await part.verdict() for part in self._parts])

    async def is_behind(self) -> bool:
        return any([await part.is_behind() for part in self._parts])

    async def differences(self) -> AsyncGenerator[Difference]:
        """A task that none of them has is missed by all that may have it: it is told of once."""
        told: set[str] = set()
        for part in reversed(self._parts):
            async for each in part.differences():
                if each.task_id not in told:
                    told.add(each.task_id)
                    yield each


def store_guards_of(
    database: Database,
    plain: Any,
    queue: QueueSettings,
    engine: Engine,
    identity: TrustedServers,
    on_progress: OnProgress = lambda done, total: None,
) -> StoreGuard | StoreGuards:
    """One server with one partition, or all partitions of all servers."""
    if len(engine.parts) == 1 and not is_cluster(plain):
        return StoreGuard(database, StoreRestore(plain, queue), queue, engine.scripts, identity, on_progress)
    restorations = [StoreRestore(plain, part.settings) for part in engine.parts]
    parts = [
        StoreGuard(database, own, part.settings, part.scripts, TrustedServers(), on_progress, belonging)
        for own, part, belonging in zip(restorations, engine.parts, _belongings(queue, restorations), strict=True)
    ]
    for part in engine.parts:
        part.scripts.on_replaced = identity.doubt.set
    return StoreGuards(parts, plain, identity)


def _belongings(queue: QueueSettings, restorations: Sequence[StoreRestore]) -> list[PartitionOwner]:
    routing = Routing(queue.partitions)
    return [
        PartitionOwner(number, routing, {place: each for place, each in enumerate(restorations) if place != number})
        for number in range(len(restorations))
    ]


def _gravest(verdicts: Sequence[StoreCheck]) -> StoreCheck:
    return min(verdicts, key=GRAVITY.index)
