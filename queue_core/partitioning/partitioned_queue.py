"""The queue's operations over several partitions: routes submissions, merges claims, sends the rest by task id.

Limit: a task's position in its lane is estimated from its own partition, which has an even share; `explain` counts it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tideq.queue_core.errors import InvalidTask, TaskNotFound
from tideq.queue_core.partitioning.admission import Admissions
from tideq.queue_core.partitioning.claim_merge import ClaimMerger
from tideq.queue_core.partitioning.ledger import Ledger
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.partitioned_attempts import is_missing
from tideq.queue_core.partitioning.partitioned_controls import PartitionedControls
from tideq.queue_core.partitioning.routing import Routing, by_partition, by_task_id
from tideq.queue_core.partitioning.submit_router import SubmitRouter
from tideq.queue_core.polls.poll import make_poll
from tideq.queue_core.queue import SWEEP_LIMIT, Queue, Removed
from tideq.queue_core.scripts.replies import Outcome
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import Reason
from tideq.queue_core.store.clock import StoreTime
from tideq.queue_core.task import Claim, NewTask, Submitted, Task
from tideq.queue_core.task_id import TaskIds
from tideq.queue_core.validation import check_batch

T = TypeVar("T", Submitted, Task)


class PartitionedQueue(Queue):
    def __init__(
        self,
        parts: Sequence[Queue],
        routing: Routing,
        health: PartitionHealth,
        claims: ClaimMerger,
        controls: PartitionedControls,
        ledger: Ledger,
        scripts: Scripts,
        settings: QueueSettings,
        time: StoreTime,
        ids: TaskIds,
    ) -> None:
        super().__init__(scripts, settings, time, ids)
        self._parts = parts
        self._routing = routing
        self._health = health
        urgency_of = self._submissions.urgency_of
        self._router = SubmitRouter(
            parts, routing, health, Admissions(parts, health, ledger, settings.admission, urgency_of)
        )
        self._claims = claims
        self._controls = controls

    async def open(self, epoch: str | None = None) -> str:
        epochs = await asyncio.gather(*(part.open(epoch) for part in self._parts))
        await self._controls.align()
        return epochs[0]

    async def submit(self, task: NewTask) -> Submitted:
        return (await self.submit_many([task], include_position=True))[0]

    async def submit_many(self, tasks: Sequence[NewTask], *, include_position: bool = False) -> list[Submitted]:
        """All or none."""
        check_batch(tasks)
        if any(task.client_id != tasks[0].client_id for task in tasks):
            raise InvalidTask("client_id", "the tasks of one submission must have the same client_id")
        answers = await self._router.submit(tasks, include_position=include_position)
        return [_estimated(answer, self._routing.count) for answer in answers]

    async def claim(
        self,
        worker_id: str,
        wanted: int = 1,
        *,
        poll_id: str = "",
        assignment_ms: int | None = None,
        capabilities: Sequence[str] | None = None,
        starts: bool = False,
    ) -> Claim:
        """Ignores `starts`: an executing task whose answer is lost would not return when its assignment lapses."""
        poll = make_poll(worker_id, wanted, poll_id, assignment_ms, capabilities)
        return await self._claims.claim(poll, wanted)

    async def undo_claim(self, worker_id: str, poll_id: str, answer: int, *, starts: bool = False) -> int:
        if answer == 0:
            return 0
        released = await self._health.call_some(lambda each: self._parts[each].undo_claim(worker_id, poll_id, answer))
        return sum(released.values())

    async def cancel_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        check_batch(task_ids)
        return await self._by_task_id(task_ids, lambda part, some: part.cancel_many(some))

    async def purge_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        check_batch(task_ids)
        outcomes = await self._by_task_id(task_ids, lambda part, some: part.purge_many(some))
        keys = [(outcome.task_id, outcome.details[0]) for outcome in outcomes if outcome.details]
        await self._forget_keys([Removed(task_id, f"{name} ") for task_id, name in keys])
        return outcomes

    async def forget_many(self, removed: Sequence[Removed]) -> None:
        """Also deletes keys in the partitions that earlier numbers chose. Only the first one corrects its counts."""
        check_batch(removed)
        keys = [Removed(row.task_id, row.idempotency) for row in removed]
        await self._forget([(row, self._routing.of_id(row.task_id)) for row in removed])
        await self._forget([(key, partition) for key in keys for partition in self._routing.elsewhere(key.task_id)])
        await self._forget_keys([key for key in keys if key.idempotency])

    async def _forget_keys(self, rows: Sequence[Removed]) -> None:
        """A key lies in the partition of its name, which may be another one than the task's."""
        await self._forget(
            [
                (row, partition)
                for row in rows
                for partition in self._routing.of_key(row.idempotency.partition(" ")[0])
                if partition != self._routing.of_id(row.task_id)
            ]
        )

    async def _forget(self, rows: Sequence[tuple[Removed, int]]) -> None:
        if not rows:
            return

        async def forget(part: Queue, some: list[Removed]) -> list[None]:
            await part.forget_many(some)
            return [None] * len(some)

        await by_partition(self._parts, [partition for _, partition in rows], [row for row, _ in rows], forget)

    async def sweep(self, limit: int = SWEEP_LIMIT) -> int:
        return sum((await self._health.call_some(lambda each: self._parts[each].sweep(limit))).values())

    async def read_many(self, task_ids: Sequence[str]) -> list[Task | None]:
        check_batch(task_ids)

        async def read(part: Queue, some: list[str]) -> list[Task | None]:
            return await part.read_many(some)

        def is_absent(task: Task | None) -> bool:
            return task is None

        found = await by_task_id(self._routing, self._parts, task_ids, str, read, is_absent)
        return [each and _estimated(each, self._routing.count) for each in found]

    async def requeue(self, verb: str, reason: Reason, task_id: str, **options: Any) -> int:
        for partition in (self._routing.of_id(task_id), *self._routing.elsewhere(task_id)):
            present = (await self._parts[partition].read_many([task_id]))[0]
            if present is not None:
                return await self._parts[partition].requeue(verb, reason, task_id, **options)
        if options.get("kept") is None:
            raise TaskNotFound(task_id)
        return await self._parts[self._routing.of_id(task_id)].requeue(verb, reason, task_id, **options)

    async def _by_task_id(
        self, task_ids: Sequence[str], call: Callable[[Queue, list[str]], Awaitable[list[Outcome]]]
    ) -> list[Outcome]:
        return await by_task_id(self._routing, self._parts, task_ids, str, call, is_missing)


def _estimated(answer: T, count: int) -> T:
    if answer.lane_position:
        return msgspec.structs.replace(answer, lane_position=answer.lane_position * count)
    return answer
