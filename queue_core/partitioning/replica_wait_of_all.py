"""Durability over several partitions, each of which may be on a server of its own."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tideq.queue_core.durability import Durability
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.replica_wait import ReplicaWait


class PartitionedReplicaWait(ReplicaWait):
    def __init__(self, client: Any, keys: Sequence[Keys], routing: Routing) -> None:
        super().__init__(client, keys[0])
        self._parts = [ReplicaWait(client, each) for each in keys]
        self._routing = routing

    async def check(self, level: Durability) -> None:
        """Checks all partitions, because the task's partition is not chosen yet."""
        for part in self._parts:
            await part.check(level)

    async def wait_for_copies(self, level: Durability, timeout_ms: int, task_ids: Sequence[str]) -> bool:
        """Waits in every partition in which a task may lie."""
        by_partition: dict[int, list[str]] = {}
        for task_id in task_ids:
            for partition in (self._routing.of_id(task_id), *self._routing.elsewhere(task_id)):
                by_partition.setdefault(partition, []).append(task_id)
        waits = (self._parts[each].safe_tasks(level, timeout_ms, ids) for each, ids in by_partition.items())
        return set(task_ids) <= set[str]().union(*await asyncio.gather(*waits))


def replica_wait_of(client: Any, keys: Sequence[Keys], numbers: Sequence[int]) -> ReplicaWait:
    return ReplicaWait(client, keys[0]) if len(keys) == 1 else PartitionedReplicaWait(client, keys, Routing(numbers))
