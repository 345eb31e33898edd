"""Looking at a queue with several partitions: sums, and a task's place among all of them.

What a partition cannot tell because it is away is missing from the sums; that it is away is told elsewhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from tideq.queue_core.controls import Limits
from tideq.queue_core.errors import TaskNotFound
from tideq.queue_core.inspector import Backlog, Explanation, Inspector, ServingWorker, Stats, WorkerCounts
from tideq.queue_core.lanes import task_type_of
from tideq.queue_core.partitioning.ledger import Ledger, Permit
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.queue import Queue
from tideq.queue_core.scripts.runner import Scripts

K = TypeVar("K")
NO_LIMITS = Limits()
ABOUT_WORKERS = ("workers_lost", "health_probe_failures", "probe_failed", "unhealthy_by_itself")


class PartitionedInspector(Inspector):
    """A snapshot speaks of one partition: take it of each."""

    def __init__(
        self,
        parts: Sequence[Inspector],
        queues: Sequence[Queue],
        routing: Routing,
        health: PartitionHealth,
        ledger: Ledger,
        scripts: Scripts,
    ) -> None:
        super().__init__(scripts)
        self._queues = queues
        self._ledger = ledger
        self._parts = parts
        self._routing = routing
        self._health = health

    async def stats(self) -> Stats:
        return merged_stats(list((await self._health.call_some(lambda each: self._parts[each].stats())).values()))

    async def backlog(self, task_types: Sequence[str] = (), capabilities: Sequence[str] = ()) -> Backlog:
        told = await self._health.call_some(lambda each: self._parts[each].backlog(task_types, capabilities))
        return Backlog(sum(each.ready for each in told.values()), sum(each.held for each in told.values()))

    async def unreadable(self, limit: int = 1_000) -> list[str]:
        told = await self._health.call_some(lambda each: self._parts[each].unreadable(limit))
        return [task_id for ids in told.values() for task_id in ids][:limit]

    async def explain(self, task_id: str) -> Explanation:
        home, found = await self._find(task_id)
        found = await self._with_trials(home, await self._with_limits(found))
        if found.lane_position is None or found.global_position is None:
            return found
        others = [each for each in self._health.up if each != home]
        told = await self._health.call(others, lambda each: self._parts[each].ahead(task_id, found.rank, found.lane))
        ahead = [each for each in told.values() if not isinstance(each, Exception)]
        return msgspec.structs.replace(
            found,
            lane_position=found.lane_position + sum(in_lane for in_lane, _ in ahead),
            global_position=found.global_position + sum(in_all for _, in_all in ahead),
        )

    async def _with_trials(self, home: int, found: Explanation) -> Explanation:
        """Trials are counted where their tasks lie, and three are for all partitions together."""
        on_trial = [each.worker_id for each in found.servers if each.trials_left is not None]
        if not on_trial:
            return found
        task_type, others = task_type_of(found.lane), [each for each in self._health.up if each != home]
        told = await self._health.call(others, lambda each: self._parts[each].trials(task_type, on_trial))
        standings = [
            dict(zip(on_trial, each, strict=True)) for each in told.values() if not isinstance(each, Exception)
        ]
        return msgspec.structs.replace(
            found,
            servers=tuple(
                _with_standings(each, [at.get(each.worker_id) for at in standings]) for each in found.servers
            ),
        )

    async def _with_limits(self, found: Explanation) -> Explanation:
        """What the whole queue's limits let out now; pauses were told by the task's own partition."""
        if found.queue_control.limits == NO_LIMITS and found.type_control.limits == NO_LIMITS:
            return found
        told = await self._health.call_some(lambda each: self._queues[each].usage())
        uses = {partition: each for partition, (_, each) in told.items()}
        permits = await self._ledger.look(uses, told[0][0] if 0 in told else 0)
        own = [permits[each.scope] for each in (found.queue_control, found.type_control) if each.scope in permits]
        queue_left = _least(found.queue_left, permits.get(found.queue_control.scope))
        type_left = _least(found.type_left, permits.get(found.type_control.scope))
        instants = [found.now_ms + each.refills_in_ms for each in own if each.refills_in_ms is not None]
        blocks_for_good = any(each.left == 0 and each.refills_in_ms is None for each in own)
        if found.allowed_at_ms is not None:
            instants.append(found.allowed_at_ms)
        return msgspec.structs.replace(
            found,
            queue_left=queue_left,
            type_left=type_left,
            allowed_now=min((each for each in (queue_left, type_left) if each is not None), default=None),
            allowed_at_ms=None if blocks_for_good else max(instants, default=None),
        )

    async def _find(self, task_id: str) -> tuple[int, Explanation]:
        for place in (self._routing.of_id(task_id), *self._routing.elsewhere(task_id)):
            try:
                return place, await self._parts[place].explain(task_id)
            except TaskNotFound:
                continue
        raise TaskNotFound(task_id)


def _with_standings(server: ServingWorker, standings: Sequence[tuple[int | None, int] | None]) -> ServingWorker:
    """With how its trials stand in the other partitions."""
    if server.trials_left is None:
        return server
    ends = [end for end, _ in filter(None, standings) if end is not None]
    given = sum(count for _, count in filter(None, standings))
    return msgspec.structs.replace(
        server, shut_until_ms=max(ends, default=None), trials_left=max(server.trials_left - given, 0)
    )


def _least(left: int | None, permit: Permit | None) -> int | None:
    """What a pause leaves, and what a limit leaves."""
    known = [each for each in (left, permit.left if permit else None) if each is not None]
    return min(known, default=None)


def merged_stats(parts: Sequence[Stats]) -> Stats:
    """Workers belong to all partitions: they are counted once, and what they hold is added up."""
    first = parts[0]
    return Stats(
        now_ms=max(part.now_ms for part in parts),
        total_depth=sum(part.total_depth for part in parts),
        by_state=added([part.by_state for part in parts]),
        by_type=added([part.by_type for part in parts]),
        by_priority=added([part.by_priority for part in parts]),
        recent=_happened([part.recent for part in parts]),
        workers=_merged_workers([part.workers for part in parts]),
        controls=first.controls,
        dead_letter_count=sum(part.dead_letter_count for part in parts),
        outbox_length=sum(part.outbox_length for part in parts),
        due_count=sum(part.due_count for part in parts),
        ready_count=sum(part.ready_count for part in parts),
        ages=added([part.ages for part in parts]),
        totals=_happened([part.totals for part in parts]),
        clock_ahead_ms=max((part.clock_ahead_ms for part in parts), key=abs),
        unreadable_count=sum(part.unreadable_count for part in parts),
        counted=added([part.counted for part in parts]),
        counted_since_ms=min((since for part in parts if (since := part.counted_since_ms) is not None), default=None),
    )


def added(counts: Sequence[Mapping[K, int]]) -> dict[K, int]:
    totals: Counter[K] = Counter()
    for each in counts:
        totals.update(each)
    return dict(totals)


def _happened(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """What is found about a worker, every partition finds."""
    found = {kind: max(each.get(kind, 0) for each in counts) for kind in ABOUT_WORKERS}
    return added(counts) | {kind: count for kind, count in found.items() if count}


def _merged_workers(parts: Sequence[WorkerCounts]) -> WorkerCounts:
    return WorkerCounts(
        active=max(part.active for part in parts),
        draining=max(part.draining for part in parts),
        unhealthy=max(part.unhealthy for part in parts),
        dead=max(part.dead for part in parts),
        total_capacity=max(part.total_capacity for part in parts),
        used_capacity=sum(part.used_capacity for part in parts),
        open_circuits=max(part.open_circuits for part in parts),
        open_circuits_by_type=_most([part.open_circuits_by_type for part in parts]),
    )


def _most(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """A worker's circuit is open in every partition."""
    return {name: max(each.get(name, 0) for each in counts) for name in {name for each in counts for name in each}}
