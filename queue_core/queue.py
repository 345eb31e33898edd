"""The queue: submit, claim, cancel, retry, replay, purge, sweep, and reading tasks, over all partitions.

Submissions are routed to a partition, claims are merged from all, everything else goes by task id. With one partition,
its most frequent calls go straight to it. Limit: of several partitions, a task's position in its lane is estimated from
its own partition, which has an even share; `explain` counts it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tideq.queue_core.attempts import is_missing
from tideq.queue_core.controls import Controls
from tideq.queue_core.errors import InvalidTask, TaskNotFound
from tideq.queue_core.partition import SWEEP_LIMIT, Partition, Removed
from tideq.queue_core.partitioning.claim_merge import ClaimMerger
from tideq.queue_core.partitioning.queue_partitions import QueuePartitions
from tideq.queue_core.partitioning.routing import by_partition
from tideq.queue_core.partitioning.submit_router import SubmitRouter
from tideq.queue_core.polls.poll import make_poll
from tideq.queue_core.scripts.replies import Outcome
from tideq.queue_core.states import Reason
from tideq.queue_core.task import Claim, NewTask, Submitted, Task
from tideq.queue_core.validation import check_batch

T = TypeVar("T", Submitted, Task)


class Queue:
    def __init__(
        self,
        parts: Sequence[Partition],
        partitions: QueuePartitions,
        submits: SubmitRouter,
        claims: ClaimMerger,
        controls: Controls,
    ) -> None:
        self.parts = parts
        self._partitions = partitions
        self._submits = submits
        self._claims = claims
        self._controls = controls
        self._only = parts[0] if len(parts) == 1 else None

    async def open(self, epoch: str | None = None) -> str:
        """Adopt and return the store's epoch; an empty store is initialised with the given one."""
        epochs = await asyncio.gather(*(part.open(epoch) for part in self.parts))
        await self._controls.align()
        return epochs[0]

    async def submit(self, task: NewTask) -> Submitted:
        """Submit one task. Concurrent calls of one client share a script call; each is accepted or refused alone."""
        if self._only:
            return await self._only.submit(task)
        return (await self.submit_many([task], include_position=True))[0]

    async def submit_many(self, tasks: Sequence[NewTask], *, include_position: bool = False) -> list[Submitted]:
        """Submit all tasks or none. All tasks of one call belong to one client."""
        check_batch(tasks)
        if any(task.client_id != tasks[0].client_id for task in tasks):
            raise InvalidTask("client_id", "the tasks of one submission must have the same client_id")
        if self._only:
            return (await self._only.submit_many(tasks, include_position=include_position)).submitted
        answers = await self._submits.submit(tasks, include_position=include_position)
        return [_estimated(answer, len(self.parts)) for answer in answers]

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
        """Claim up to `wanted` tasks. A repeated `poll_id` returns its earlier tasks that are still in the same state.

        `capabilities` replace the declared ones for this claim. With `starts` the tasks are already executing when they
        are returned: if the reply is lost and the `poll_id` is not repeated, they come back only at their execution
        deadline. Several partitions ignore it: their claims are assigned one after the other.
        """
        if self._only:
            poll = make_poll(worker_id, wanted, poll_id, assignment_ms, capabilities, starts=starts)
            return await self._only.claim(poll, wanted)
        return await self._claims.claim(make_poll(worker_id, wanted, poll_id, assignment_ms, capabilities), wanted)

    async def undo_claim(self, worker_id: str, poll_id: str, answer: int, *, starts: bool = False) -> int:
        """Release the tasks of a claim reply that could not be delivered; returns how many were released.

        `starts` as in the claim: without it, executing tasks prove that the reply arrived and are left alone.
        """
        if self._only:
            return await self._only.undo_claim(worker_id, poll_id, answer, starts=starts)
        if answer == 0:
            return 0
        health = self._partitions.health
        released = await health.call_some(lambda each: self.parts[each].undo_claim(worker_id, poll_id, answer))
        return sum(released.values())

    async def cancel_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        """Returns outcomes whose details hold the previous state and the worker that gets the stop, if any."""
        check_batch(task_ids)
        return await self._by_task_id(task_ids, lambda part, some: part.cancel_many(some))

    async def cancel(self, task_id: str) -> Outcome:
        return (await self.cancel_many([task_id]))[0].unwrap()

    async def purge_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        check_batch(task_ids)
        outcomes = await self._by_task_id(task_ids, lambda part, some: part.purge_many(some))
        keys = [(outcome.task_id, outcome.details[0]) for outcome in outcomes if outcome.details]
        await self._forget_keys([Removed(task_id, f"{name} ") for task_id, name in keys])
        return outcomes

    async def purge(self, task_id: str) -> Outcome:
        return (await self.purge_many([task_id]))[0].unwrap()

    async def forget_many(self, removed: Sequence[Removed]) -> None:
        """Remove the remains of tasks that history deleted and whose records are gone.

        Also deletes keys in the partitions that earlier numbers chose. Only the first one corrects its counts.
        """
        check_batch(removed)
        routing = self._partitions.routing
        keys = [Removed(row.task_id, row.idempotency) for row in removed]
        await self._forget([(row, routing.of_id(row.task_id)) for row in removed])
        await self._forget([(key, partition) for key in keys for partition in routing.elsewhere(key.task_id)])
        await self._forget_keys([key for key in keys if key.idempotency])

    async def _forget_keys(self, rows: Sequence[Removed]) -> None:
        """A key lies in the partition of its name, which may be another one than the task's."""
        routing = self._partitions.routing
        await self._forget(
            [
                (row, partition)
                for row in rows
                for partition in routing.of_key(row.idempotency.partition(" ")[0])
                if partition != routing.of_id(row.task_id)
            ]
        )

    async def _forget(self, rows: Sequence[tuple[Removed, int]]) -> None:
        if not rows:
            return

        async def forget(partition: int, some: list[Removed]) -> list[None]:
            await self.parts[partition].forget_many(some)
            return [None] * len(some)

        await by_partition([partition for _, partition in rows], [row for row, _ in rows], forget)

    async def sweep(self, limit: int = SWEEP_LIMIT) -> int:
        """Recover all due tasks, a bounded number in each script call; returns how many tasks moved."""
        if self._only:
            return await self._only.sweep(limit)
        return sum((await self._partitions.health.call_some(lambda each: self.parts[each].sweep(limit))).values())

    async def read_many(self, task_ids: Sequence[str]) -> list[Task | None]:
        """Returns the tasks as stored now, None for each that the store does not have. Costs a call for 50 tasks."""
        check_batch(task_ids)

        async def read(partition: int, some: list[str]) -> list[Task | None]:
            return await self.parts[partition].read_many(some)

        def is_absent(task: Task | None) -> bool:
            return task is None

        found = await self._partitions.by_task_id(task_ids, str, read, is_absent)
        return [each and _estimated(each, len(self.parts)) for each in found]

    async def read(self, task_id: str) -> Task:
        found = (await self.read_many([task_id]))[0]
        if found is None:
            raise TaskNotFound(task_id)
        return found

    async def retry(self, task_id: str, **options: Any) -> int:
        """Queue a failed, dead or cancelled task again; see `Partition.requeue` for the options."""
        return await self._requeue("retry", Reason.RETRIED, task_id, **options)

    async def replay(self, task_id: str, **options: Any) -> int:
        """Queue a dead letter again; see `Partition.requeue` for the options."""
        return await self._requeue("replay", Reason.REPLAYED, task_id, **options)

    async def _requeue(self, verb: str, reason: Reason, task_id: str, **options: Any) -> int:
        home, *others = (self._partitions.routing.of_id(task_id), *self._partitions.routing.elsewhere(task_id))
        for partition in others and (home, *others):
            if (await self.parts[partition].read_many([task_id]))[0] is not None:
                return await self.parts[partition].requeue(verb, reason, task_id, **options)
        return await self.parts[home].requeue(verb, reason, task_id, **options)

    async def _by_task_id(
        self, task_ids: Sequence[str], call: Callable[[Partition, list[str]], Awaitable[list[Outcome]]]
    ) -> list[Outcome]:
        return await self._partitions.by_task_id(
            task_ids, str, lambda partition, some: call(self.parts[partition], some), is_missing
        )


def _estimated(answer: T, count: int) -> T:
    if count > 1 and answer.lane_position:
        return msgspec.structs.replace(answer, lane_position=answer.lane_position * count)
    return answer
