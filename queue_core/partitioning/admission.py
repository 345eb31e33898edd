"""Admission of submissions: depth limits and clients' rates over all partitions.

A client's rate is kept in the partition that its name belongs to. The depth is read from the partitions only where it
may be near a limit: at half of it, after this process has submitted a 64th of it, or after a second. The ledger stores
what was read of a partition, for when it is away. Near a limit each submission reserves its place with the ledger,
which counts all others that are under way. So each process can pass a limit by at most a 64th of it, and only with a
reading of the second before the queue filled up. A refused submission is still sent to its partition, which answers the
tasks that exist already, and returns how many are new: that many are requested once more.
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tideq.queue_core.errors import QueueFull, Refused, StoreUnavailable, Unavailable
from tideq.queue_core.partition import AdmissionTerms, Partition
from tideq.queue_core.partitioning.ledger import Grant, Ledger, Uses
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.polls.poll import Use
from tideq.queue_core.settings import Admission as Limits
from tideq.queue_core.task import NewTask, RateLimitState

QUEUED = "#queued"
"""The ledger's name for the depth: no task type can have it."""
RETRY_AFTER_MS = 5_000
FAR, SHARE = 2, 64
READING_TTL_SECONDS = 1.0
MAX_READINGS = 4


class Stage(NamedTuple):
    name: str
    limit: int
    """Submissions that would make the queue deeper than this are refused."""


class Reservation(NamedTuple):
    """The place that a submission near a depth limit has reserved."""

    grant: Grant
    uses: Uses


class DepthReading(NamedTuple):
    now_ms: int | None
    """The ledger's instant; `None` where it is away."""
    uses: Uses


class Demand(NamedTuple):
    """Client, size and urgency of one submission."""

    client_id: str
    task_count: int
    urgency: int
    """Of the least urgent of them."""
    is_exact: bool = False
    """Whether all are known to be new; else some may stand for tasks that are there already, and cost nothing."""


class AdmissionEntry:
    """A submission that is under way."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.count = demand.task_count
        self.refusal: Refused | None = None
        self.bucket: RateLimitState | None = None
        self.reservation: Reservation | None = None
        self.is_admitted = False

    @property
    def admission(self) -> AdmissionTerms:
        if self.refusal is not None:
            return AdmissionTerms(most_new=0)
        return AdmissionTerms(self.count if self.demand.is_exact else None, self.reservation is not None)


class Admissions:
    def __init__(
        self,
        parts: Sequence[Partition],
        health: PartitionHealth,
        ledger: Ledger,
        limits: Limits,
        urgency_of: Callable[[str | None], int],
    ) -> None:
        self._parts = parts
        self._ledger = ledger
        self._limits = limits
        self._urgency_of = urgency_of
        self._depth = DepthGate(parts, health, ledger)

    def demand(self, tasks: Sequence[NewTask]) -> Demand:
        urgency = max(self._urgency_of(priority) for priority in {task.priority for task in tasks})
        return Demand(tasks[0].client_id, len(tasks), urgency)

    async def enter(self, demand: Demand) -> AdmissionEntry:
        """The caller ends every entry with `leave`, or with `abandon` if the outcome of its write is unknown."""
        limits, entry = self._limits, AdmissionEntry(demand)
        try:
            if limits.client_rate_per_second:
                entry.bucket = await self._spend(demand.client_id, entry.count)
            if demand.client_id not in limits.listed_clients:
                entry.reservation = await self._depth.reserve(entry.count, self._stages_for(demand.urgency))
                entry.is_admitted = True
        except Refused as refusal:
            entry.refusal = refusal
        return entry

    def abandon(self, entry: AdmissionEntry) -> None:
        """Ends an entry with an unknown outcome: its reservation expires, its client's rate stays spent."""
        if entry.is_admitted:
            self._depth.settle(entry.count)

    async def leave(
        self, entry: AdmissionEntry, new_count: int = 0, partition: int = 0, counted: int | None = None
    ) -> RateLimitState | None:
        """Returns what the entry did not use; the result is the client's rate after that."""
        if entry.reservation is not None:
            takes = {} if counted is None else {QUEUED: {partition: counted}}
            await self._ledger.settle(entry.reservation.grant, entry.reservation.uses, {QUEUED: new_count}, takes)
        self.abandon(entry)
        if entry.bucket is not None and new_count < entry.count:
            entry.bucket = await self._spend(entry.demand.client_id, new_count - entry.count)
        return entry.bucket

    async def _spend(self, client_id: str, count: int) -> RateLimitState:
        home = zlib.crc32(client_id.encode()) % len(self._parts)
        limits = self._limits
        return await self._parts[home].spend(client_id, count, limits.client_rate_per_second, limits.client_burst)

    def _stages_for(self, urgency: int) -> list[Stage]:
        """The stages that bind a task of this urgency, in the order in which a refusal names them."""
        limits = self._limits
        stages = ("max", limits.max_depth), ("high_only", limits.high_only_depth), ("soft", limits.soft_depth)
        return [Stage(*stage) for stage in stages[: urgency + 1]]


class DepthGate:
    def __init__(self, parts: Sequence[Partition], health: PartitionHealth, ledger: Ledger) -> None:
        self._parts = parts
        self._health = health
        self._ledger = ledger
        self._queued: dict[int, int] = {}
        """By partition, as this process read it last: the only source while the ledger is away."""
        self._total = 0
        self._read_at = -READING_TTL_SECONDS
        self._since = 0
        """Tasks that this process has admitted and that the last reading may not include."""
        self._under_way = 0
        self._refreshing: asyncio.Task[None] | None = None

    async def reserve(self, count: int, stages: Sequence[Stage]) -> Reservation | None:
        """Returns `None` where the depth is far from its limits. Raises `QueueFull`."""
        least = min(stage.limit for stage in stages)
        if not self._is_far(count, least):
            await self._refresh_together()
        if self._is_far(count, least):
            self._since += count
            self._under_way += count
            return None
        reservation = await self._reserve_near(count, stages)
        self._since += count
        self._under_way += count
        return reservation

    def settle(self, count: int) -> None:
        self._under_way -= count

    def _is_far(self, count: int, limit: int) -> bool:
        since = self._since + count
        is_fresh = time.monotonic() - self._read_at < READING_TTL_SECONDS
        return is_fresh and since <= limit // SHARE and self._total + since <= limit // FAR

    async def _refresh_together(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.ensure_future(self._refresh())
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        reading = await self._read(0)
        if reading.now_ms is not None:
            with contextlib.suppress(Unavailable):
                self._total = (await self._ledger.read(reading.uses, reading.now_ms))[QUEUED].running

    async def _read(self, limit: int) -> DepthReading:
        began, under_way = time.monotonic(), self._under_way
        depths = await self._health.call_some(lambda each: self._parts[each].depth())
        self._queued.update({partition: queued for partition, (_, queued, _) in depths.items()})
        self._read_at, self._since, self._total = began, under_way, sum(self._queued.values())
        uses = {each: [Use(QUEUED, "-", str(limit), queued, taken, 0)] for each, (_, queued, taken) in depths.items()}
        return DepthReading(depths[0][0] if 0 in depths else None, uses)

    async def _reserve_near(self, count: int, stages: Sequence[Stage]) -> Reservation:
        least, depth = min(stages, key=lambda stage: stage.limit), 0
        for _ in range(MAX_READINGS):
            reading = await self._read(least.limit)
            if reading.now_ms is None:
                raise StoreUnavailable(
                    "the queue is near a depth limit, and partition 0, which keeps the limits, does not answer"
                )
            grant = await self._ledger.grant(reading.uses, {QUEUED: count}, reading.now_ms, is_whole=True)
            permit = grant.permits[QUEUED]
            self._total = max(self._total, permit.running)
            if permit.granted:
                return Reservation(grant, reading.uses)
            depth = permit.running
            if not permit.is_uncertain:
                break
        exceeded = next((stage for stage in stages if depth + count > stage.limit), least)
        raise QueueFull(exceeded.name, depth, exceeded.limit, RETRY_AFTER_MS)
