"""The queue's verbs over several partitions: submissions are placed, claims merged, everything else goes by the id.

A task's place in its lane is reckoned from its own partition, which has an even share of all; `explain` counts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tideq.queue_core.engine.checks import check_batch
from tideq.queue_core.engine.clock import StoreTime
from tideq.queue_core.engine.partitions.admission import Admissions
from tideq.queue_core.engine.partitions.attempts import is_missing
from tideq.queue_core.engine.partitions.claiming import Claiming
from tideq.queue_core.engine.partitions.controls import PartitionedControls
from tideq.queue_core.engine.partitions.health import Health
from tideq.queue_core.engine.partitions.ledger import Ledger
from tideq.queue_core.engine.partitions.placing import Placing
from tideq.queue_core.engine.partitions.routing import Routing, seek, spread
from tideq.queue_core.engine.polls import make_poll
from tideq.queue_core.engine.queue import SWEEP_LIMIT, Queue, Removed
from tideq.queue_core.engine.replies import Outcome
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.errors import InvalidTask, TaskNotFound
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import Reason
from tideq.queue_core.task import Claim, NewTask, Submitted, Task
from tideq.queue_core.task_id import TaskIds

T = TypeVar("T", Submitted, Task)


class PartitionedQueue(Queue):
    def __init__(
        self,
        parts: Sequence[Queue],
        routing: Routing,
        health: Health,
        claiming: Claiming,
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
        self._placing = Placing(
            parts, routing, health, Admissions(parts, health, ledger, settings.admission, urgency_of)
        )
        self._claiming = claiming
        self._controls = controls

    async def open(self, epoch: str | None = None) -> str:
        epochs = await asyncio.gather(*(part.open(epoch) for part in self._parts))
        await self._controls.align()
        return epochs[0]

    async def submit(self, task: NewTask) -> Submitted:
        return (await self.submit_many([task], wants_position=True))[0]

    async def submit_many(self, tasks: Sequence[NewTask], *, wants_position: bool = False) -> list[Submitted]:
        """All or none."""
        check_batch(tasks)
        if any(task.client_id != tasks[0].client_id for task in tasks):
            raise InvalidTask("client_id", "one submission speaks for one client")
        answers = await self._placing.submit(tasks, wants_position=wants_position)
        return [_placed(answer, self._routing.count) for answer in answers]

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
        """Starts nothing: what a partition gave without being heard would not come back when its assignment lapses."""
        poll = make_poll(worker_id, wanted, poll_id, assignment_ms, capabilities)
        return await self._claiming.claim(poll, wanted)

    async def withdraw(self, worker_id: str, poll_id: str, answer: int, *, starts: bool = False) -> int:
        if answer == 0:
            return 0
        told = await self._health.ask_some(lambda each: self._parts[each].withdraw(worker_id, poll_id, answer))
        return sum(told.values())

    async def cancel_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        check_batch(task_ids)
        return await self._seek(task_ids, lambda part, some: part.cancel_many(some))

    async def purge_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        check_batch(task_ids)
        outcomes = await self._seek(task_ids, lambda part, some: part.purge_many(some))
        keys = [(outcome.task_id, outcome.details[0]) for outcome in outcomes if outcome.details]
        await self._forget_keys([Removed(task_id, f"{name} ") for task_id, name in keys])
        return outcomes

    async def forget_many(self, removed: Sequence[Removed]) -> None:
        """A key of an id that was put elsewhere once is forgotten there as well. The first place counts for all."""
        check_batch(removed)
        keys = [Removed(row.task_id, row.idempotency) for row in removed]
        await self._forget([(row, self._routing.of_id(row.task_id)) for row in removed])
        await self._forget([(key, place) for key in keys for place in self._routing.elsewhere(key.task_id)])
        await self._forget_keys([key for key in keys if key.idempotency])

    async def _forget_keys(self, rows: Sequence[Removed]) -> None:
        """Ids and idempotency: a key may point here from the partition it belongs to."""
        await self._forget(
            [
                (row, place)
                for row in rows
                for place in self._routing.of_key(row.idempotency.partition(" ")[0])
                if place != self._routing.of_id(row.task_id)
            ]
        )

    async def _forget(self, rows: Sequence[tuple[Removed, int]]) -> None:
        if not rows:
            return

        async def forget(part: Queue, some: list[Removed]) -> list[None]:
            await part.forget_many(some)
            return [None] * len(some)

        await spread(self._parts, [place for _, place in rows], [row for row, _ in rows], forget)

    async def sweep(self, limit: int = SWEEP_LIMIT) -> int:
        return sum((await self._health.ask_some(lambda each: self._parts[each].sweep(limit))).values())

    async def read_many(self, task_ids: Sequence[str]) -> list[Task | None]:
        check_batch(task_ids)

        async def read(part: Queue, some: list[str]) -> list[Task | None]:
            return await part.read_many(some)

        def is_unknown(task: Task | None) -> bool:
            return task is None

        found = await seek(self._routing, self._parts, task_ids, str, read, is_unknown)
        return [each and _placed(each, self._routing.count) for each in found]

    async def revive(self, verb: str, reason: Reason, task_id: str, **options: Any) -> int:
        for place in self._places(task_id):
            present = (await self._parts[place].read_many([task_id]))[0]
            if present is not None:
                return await self._parts[place].revive(verb, reason, task_id, **options)
        if options.get("kept") is None:
            raise TaskNotFound(task_id)
        return await self._parts[self._routing.of_id(task_id)].revive(verb, reason, task_id, **options)

    def _places(self, task_id: str) -> list[int]:
        return [self._routing.of_id(task_id), *self._routing.elsewhere(task_id)]

    async def _seek(
        self, task_ids: Sequence[str], call: Callable[[Queue, list[str]], Awaitable[list[Outcome]]]
    ) -> list[Outcome]:
        return await seek(self._routing, self._parts, task_ids, str, call, is_missing)


def _placed(told: T, count: int) -> T:
    if told.lane_position:
        return msgspec.structs.replace(told, lane_position=told.lane_position * count)
    return told
