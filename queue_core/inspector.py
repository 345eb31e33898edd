"""Read-only statistics of the queue: sums over its partitions, and a task's place among all of them.

Limit: the counts of a partition that is away are missing from the sums; the readiness checks report such a partition.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from tideq.queue_core.controls import Limits
from tideq.queue_core.errors import TaskNotFound
from tideq.queue_core.invariants import Snapshot
from tideq.queue_core.lanes import task_type_of
from tideq.queue_core.partition import Partition
from tideq.queue_core.partition_views import Backlog, Explanation, PartitionViews, ServingWorker, Stats, WorkerCounts
from tideq.queue_core.partitioning.ledger import Ledger, Permit
from tideq.queue_core.partitioning.queue_partitions import QueuePartitions

K = TypeVar("K")
NO_LIMITS = Limits()
ABOUT_WORKERS = ("workers_lost", "health_probe_failures", "probe_failed", "unhealthy_by_itself")


class Inspector:
    def __init__(
        self, parts: Sequence[PartitionViews], queues: Sequence[Partition], partitions: QueuePartitions, ledger: Ledger
    ) -> None:
        self._parts = parts
        self._queues = queues
        self._routing = partitions.routing
        self._health = partitions.health
        self._ledger = ledger

    async def stats(self) -> Stats:
        return merged_stats(list((await self._health.call_some(lambda each: self._parts[each].stats())).values()))

    async def snapshot(self) -> Snapshot:
        """Returns the data of the invariants of the first partition at one instant.

        Costs a read of every task: for tests and the doctor. Of several partitions, take it of each engine.
        """
        return await self._parts[0].snapshot()

    async def backlog(self, task_types: Sequence[str] = (), capabilities: Sequence[str] = ()) -> Backlog:
        """Returns the backlog of the queue, or of the lanes that a worker with this declaration would serve."""
        parts = (
            await self._health.call_some(lambda each: self._parts[each].backlog(task_types, capabilities))
        ).values()
        return Backlog(sum(each.ready for each in parts), sum(each.held for each in parts))

    async def unreadable(self, limit: int = 1_000) -> list[str]:
        """Returns ids of live tasks set aside because this version cannot read them."""
        answers = await self._health.call_some(lambda each: self._parts[each].unreadable(limit))
        return [task_id for ids in answers.values() for task_id in ids][:limit]

    async def explain(self, task_id: str) -> Explanation:
        home, found = await self._find(task_id)
        if len(self._parts) == 1:
            return found
        found = await self._with_trials(home, await self._with_limits(found))
        if found.lane_position is None or found.global_position is None:
            return found
        others = [each for each in self._health.up if each != home]
        answers = await self._health.call(
            others, lambda each: self._parts[each].count_ahead(task_id, found.rank, found.lane)
        )
        ahead = [each for each in answers.values() if not isinstance(each, Exception)]
        return msgspec.structs.replace(
            found,
            lane_position=found.lane_position + sum(in_lane for in_lane, _ in ahead),
            global_position=found.global_position + sum(in_all for _, in_all in ahead),
        )

    async def _with_trials(self, home: int, found: Explanation) -> Explanation:
        """Trials are counted in the partitions of their tasks, and limited over all partitions together."""
        on_trial = [each.worker_id for each in found.serving_workers if each.trials_left is not None]
        if not on_trial:
            return found
        task_type, others = task_type_of(found.lane), [each for each in self._health.up if each != home]
        answers = await self._health.call(others, lambda each: self._parts[each].trials(task_type, on_trial))
        trials = [
            dict(zip(on_trial, each, strict=True)) for each in answers.values() if not isinstance(each, Exception)
        ]
        return msgspec.structs.replace(
            found,
            serving_workers=tuple(
                _with_trials(each, [at.get(each.worker_id) for at in trials]) for each in found.serving_workers
            ),
        )

    async def _with_limits(self, found: Explanation) -> Explanation:
        """Adds what the whole queue's limits let out now; the task's own partition has added its pauses."""
        if found.queue_control.limits == NO_LIMITS and found.type_control.limits == NO_LIMITS:
            return found
        usages = await self._health.call_some(lambda each: self._queues[each].usage())
        uses = {partition: each for partition, (_, each) in usages.items()}
        permits = await self._ledger.read(uses, usages[0][0] if 0 in usages else 0)
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
        for partition in (self._routing.of_id(task_id), *self._routing.elsewhere(task_id)):
            try:
                return partition, await self._parts[partition].explain(task_id)
            except TaskNotFound:
                continue
        raise TaskNotFound(task_id)


def _with_trials(worker: ServingWorker, trials: Sequence[tuple[int | None, int] | None]) -> ServingWorker:
    """Includes the worker's trials in the other partitions."""
    if worker.trials_left is None:
        return worker
    ends = [end for end, _ in filter(None, trials) if end is not None]
    used = sum(count for _, count in filter(None, trials))
    return msgspec.structs.replace(
        worker, open_until_ms=max(ends, default=None), trials_left=max(worker.trials_left - used, 0)
    )


def _least(left: int | None, permit: Permit | None) -> int | None:
    """The smaller of what a pause leaves and what a limit leaves."""
    return min((each for each in (left, permit.left if permit else None) if each is not None), default=None)


def merged_stats(parts: Sequence[Stats]) -> Stats:
    """Workers are registered in all partitions: they are counted once, and the tasks they hold are added up."""
    first, *others = parts
    if not others:
        return first
    return Stats(
        now_ms=max(part.now_ms for part in parts),
        total_depth=sum(part.total_depth for part in parts),
        by_state=added([part.by_state for part in parts]),
        by_type=added([part.by_type for part in parts]),
        by_priority=added([part.by_priority for part in parts]),
        recent=_added_events([part.recent for part in parts]),
        workers=_merged_workers([part.workers for part in parts]),
        controls=first.controls,
        dead_letter_count=sum(part.dead_letter_count for part in parts),
        outbox_length=sum(part.outbox_length for part in parts),
        due_count=sum(part.due_count for part in parts),
        ready_count=sum(part.ready_count for part in parts),
        ages=added([part.ages for part in parts]),
        totals=_added_events([part.totals for part in parts]),
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


def _added_events(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """An event of a worker is counted in every partition."""
    of_workers = {kind: max(each.get(kind, 0) for each in counts) for kind in ABOUT_WORKERS}
    return added(counts) | {kind: count for kind, count in of_workers.items() if count}


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
