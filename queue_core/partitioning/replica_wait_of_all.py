"""Durability over several partitions: each is on a server of its own, perhaps."""

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
        """Where a task will go is not known yet: all must be able to."""
        for part in self._parts:
            await part.check(level)

    async def reach(self, level: Durability, timeout_ms: int, task_ids: Sequence[str]) -> bool:
        """Each task is looked for wherever it may lie."""
        by_place: dict[int, list[str]] = {}
        for task_id in task_ids:
            for place in (self._routing.of_id(task_id), *self._routing.elsewhere(task_id)):
                by_place.setdefault(place, []).append(task_id)
        waits = (self._parts[place].safe_ones(level, timeout_ms, ids) for place, ids in by_place.items())
        return set(task_ids) <= set[str]().union(*await asyncio.gather(*waits))


def replica_wait_of(client: Any, keys: Sequence[Keys], numbers: Sequence[int]) -> ReplicaWait:
    return ReplicaWait(client, keys[0]) if len(keys) == 1 else PartitionedReplicaWait(client, keys, Routing(numbers))
