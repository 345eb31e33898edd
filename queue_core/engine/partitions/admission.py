"""Whether the queue takes what is submitted: depth limits and clients' rates over all partitions.

A client's bucket lies in the partition its name belongs to. Depth is looked at where it may be near a limit: at half of
it, or after as many submissions of this process as a 64th of it, or a second. What was seen is kept by the ledger, for
when a partition is away, whichever process asks then. Near a limit each submission reserves its
place with the ledger, which knows of all others that are under way. So a limit is passed by at most a 64th of it for
each process whose look was from the second before the queue filled up, and by nothing from then on. What is refused is
still answered where it is known already, so the script is asked all the same: it tells how much of a batch is new, and
that much is asked for once more.
"""

import asyncio
import contextlib
import time
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tideq.queue_core.engine.partitions.health import Health
from tideq.queue_core.engine.partitions.ledger import Grant, Ledger, Uses
from tideq.queue_core.engine.polls import Use
from tideq.queue_core.engine.queue import Admission, Queue
from tideq.queue_core.errors import QueueFull, Refused, StoreUnavailable, Unavailable
from tideq.queue_core.settings import Admission as Limits
from tideq.queue_core.task import Bucket, NewTask

QUEUED = "#queued"
"""The ledger's name for the depth: no task type can have it."""
RETRY_AFTER_MS = 5_000
FAR, SHARE = 2, 64
VIEW_SECONDS = 1.0
MAX_LOOKS = 4


class Stage(NamedTuple):
    name: str
    limit: int
    """The depth from which on it refuses."""


class Room(NamedTuple):
    """What a submission near a depth limit has reserved."""

    grant: Grant
    uses: Uses


class Look(NamedTuple):
    now_ms: int | None
    """The ledger's instant; `None` where it is away."""
    uses: Uses


class Demand(NamedTuple):
    """What somebody wants to submit."""

    client_id: str
    task_count: int
    urgency: int
    """Of the least urgent of them."""
    is_exact: bool = False
    """Whether all are known to be new; else some may stand for tasks that are there already, and cost nothing."""


class Entry:
    """One submission on its way in."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.count = demand.task_count
        self.refusal: Refused | None = None
        self.bucket: Bucket | None = None
        self.room: Room | None = None
        self.is_let_in = False

    @property
    def admission(self) -> Admission:
        if self.refusal is not None:
            return Admission(most_new=0)
        return Admission(self.count if self.demand.is_exact else None, self.room is not None)


class Admissions:
    def __init__(
        self,
        parts: Sequence[Queue],
        health: Health,
        ledger: Ledger,
        limits: Limits,
        urgency_of: Callable[[str | None], int],
    ) -> None:
        self._parts = parts
        self._ledger = ledger
        self._limits = limits
        self._urgency_of = urgency_of
        self._depth = Depth(parts, health, ledger)

    def demand(self, tasks: Sequence[NewTask]) -> Demand:
        urgency = max(self._urgency_of(priority) for priority in {task.priority for task in tasks})
        return Demand(tasks[0].client_id, len(tasks), urgency)

    async def enter(self, demand: Demand) -> Entry:
        """To be left again, unless nobody knows what became of it."""
        limits, entry = self._limits, Entry(demand)
        try:
            if limits.client_rate_per_second:
                entry.bucket = await self._spend(demand.client_id, entry.count)
            if demand.client_id not in limits.listed_clients:
                entry.room = await self._depth.reserve(entry.count, self._stages_for(demand.urgency))
                entry.is_let_in = True
        except Refused as refusal:
            entry.refusal = refusal
        return entry

    def abandon(self, entry: Entry) -> None:
        """Nobody knows what became of it: what it holds runs out by itself, or is spent."""
        if entry.is_let_in:
            self._depth.settle(entry.count)

    async def leave(
        self, entry: Entry, new_count: int = 0, partition: int = 0, counted: int | None = None
    ) -> Bucket | None:
        """What of it was new, and where it was written; returns the client's bucket as it is then."""
        if entry.room is not None:
            takes = {} if counted is None else {QUEUED: {partition: counted}}
            await self._ledger.redeem(entry.room.grant, entry.room.uses, {QUEUED: new_count}, takes)
        self.abandon(entry)
        if entry.bucket is not None and new_count < entry.count:
            entry.bucket = await self._spend(entry.demand.client_id, new_count - entry.count)
        return entry.bucket

    async def _spend(self, client_id: str, count: int) -> Bucket:
        home = zlib.crc32(client_id.encode()) % len(self._parts)
        limits = self._limits
        return await self._parts[home].spend(client_id, count, limits.client_rate_per_second, limits.client_burst)

    def _stages_for(self, urgency: int) -> list[Stage]:
        """Those that bind such a task, in the order in which they are named in a refusal."""
        limits = self._limits
        stages = ("max", limits.max_depth), ("high_only", limits.high_only_depth), ("soft", limits.soft_depth)
        return [Stage(*stage) for stage in stages[: urgency + 1]]


class Depth:
    def __init__(self, parts: Sequence[Queue], health: Health, ledger: Ledger) -> None:
        self._parts = parts
        self._health = health
        self._ledger = ledger
        self._queued: dict[int, int] = {}
        """By partition as this process saw it last: all that is known while the ledger is away."""
        self._total = 0
        self._seen_at = -VIEW_SECONDS
        self._since = 0
        """What this process has let in that the last look may not have seen."""
        self._under_way = 0
        self._looking: asyncio.Task[None] | None = None

    async def reserve(self, count: int, stages: Sequence[Stage]) -> Room | None:
        """Nothing where the depth is far from its limits. Raises `QueueFull`."""
        least = min(stage.limit for stage in stages)
        if not self._is_far(count, least):
            await self._look_together()
        if self._is_far(count, least):
            self._since += count
            self._under_way += count
            return None
        room = await self._reserve_near(count, stages)
        self._since += count
        self._under_way += count
        return room

    def settle(self, count: int) -> None:
        self._under_way -= count

    def _is_far(self, count: int, limit: int) -> bool:
        since = self._since + count
        is_fresh = time.monotonic() - self._seen_at < VIEW_SECONDS
        return is_fresh and since <= limit // SHARE and self._total + since <= limit // FAR

    async def _look_together(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._measure())
        await asyncio.shield(self._looking)

    async def _measure(self) -> None:
        look = await self._look(0)
        if look.now_ms is not None:
            with contextlib.suppress(Unavailable):
                self._total = (await self._ledger.look(look.uses, look.now_ms))[QUEUED].running

    async def _look(self, limit: int) -> Look:
        began, under_way = time.monotonic(), self._under_way
        told = await self._health.ask_some(lambda each: self._parts[each].depth())
        self._queued.update({partition: queued for partition, (_, queued, _) in told.items()})
        self._seen_at, self._since, self._total = began, under_way, sum(self._queued.values())
        uses = {each: [Use(QUEUED, "-", str(limit), queued, taken, 0)] for each, (_, queued, taken) in told.items()}
        return Look(told[0][0] if 0 in told else None, uses)

    async def _reserve_near(self, count: int, stages: Sequence[Stage]) -> Room:
        least, depth = min(stages, key=lambda stage: stage.limit), 0
        for _ in range(MAX_LOOKS):
            look = await self._look(least.limit)
            if look.now_ms is None:
                raise StoreUnavailable("the queue is near a depth limit, and partition 0, which keeps it, is away")
            grant = await self._ledger.grant(look.uses, {QUEUED: count}, look.now_ms, is_whole=True)
            permit = grant.permits[QUEUED]
            self._total = max(self._total, permit.running)
            if permit.granted:
                return Room(grant, look.uses)
            depth = permit.running
            if not permit.is_doubtful:
                break
        exceeded = next((stage for stage in stages if depth + count > stage.limit), least)
        raise QueueFull(exceeded.name, depth, exceeded.limit, RETRY_AFTER_MS)
