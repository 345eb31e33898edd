"""Finds out which tasks the partitions still have, for the clean-up of history."""

from collections.abc import Sequence
from typing import Any

from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.partitioning.routing import Routing, by_task_id
from tideq.queue_core.scripts.keys import Keys


class PartitionedConsumer(OutboxConsumer):
    """`parts` read the entries, one of each partition."""

    def __init__(self, client: Any, keys: Sequence[Keys], routing: Routing) -> None:
        super().__init__(client, keys[0])
        self.parts = [OutboxConsumer(client, each) for each in keys]
        self._routing = routing

    async def absent(self, task_ids: Sequence[bytes]) -> set[bytes]:
        if not task_ids:
            return set()

        async def has(partition: int, some: list[bytes]) -> list[bool]:
            gone = await self.parts[partition].absent(some)
            return [task_id not in gone for task_id in some]

        found = await by_task_id(self._routing, task_ids, bytes.decode, has, lambda is_here: not is_here)
        return {task_id for task_id, is_here in zip(task_ids, found, strict=True) if not is_here}
