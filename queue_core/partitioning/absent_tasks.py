"""Finds out which tasks no partition has any more, for retries and the clean-up of history."""

from collections.abc import Sequence

from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.partitioning.routing import Routing, by_task_id


class AbsentTasks:
    """`parts` read one partition each."""

    def __init__(self, parts: Sequence[OutboxConsumer], routing: Routing) -> None:
        self._parts = parts
        self._routing = routing

    async def among(self, task_ids: Sequence[str]) -> set[str]:
        if not task_ids:
            return set()

        async def has(partition: int, some: list[str]) -> list[bool]:
            gone = await self._parts[partition].absent([task_id.encode() for task_id in some])
            return [task_id.encode() not in gone for task_id in some]

        found = await by_task_id(self._routing, task_ids, str, has, lambda is_here: not is_here)
        return {task_id for task_id, is_here in zip(task_ids, found, strict=True) if not is_here}
