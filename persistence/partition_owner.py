"""Which tasks of history one partition of the store owns, when a recovery restores them.

An id made by the queue names its partition. A chosen id may lie where an earlier partition count had put it, so the
other partitions are searched first; a task that none of them has is restored to the partition that its id names.
"""

from collections.abc import Mapping, Sequence

from tideq.queue_core.partitioning.routing import Routing, places_of_byte
from tideq.queue_core.store.restore import StoreRestore


class PartitionOwner:
    def __init__(self, partition: int, routing: Routing, others: Mapping[int, StoreRestore]) -> None:
        self._partition = partition
        self._routing = routing
        self._others = others

    @property
    def id_bytes(self) -> list[int] | None:
        """Returns the partition bytes of ids that this partition may own; None for any."""
        if self._routing.count == 1:
            return None
        return [byte for byte in range(256) if self._partition in places_of_byte(self._routing, byte)]

    @property
    def key_filter(self) -> tuple[list[int], int]:
        """Returns the partition counts that divide an idempotency key's name, and the remainder of this partition."""
        return list(self._routing.numbers), self._partition

    async def select_owned(self, task_ids: Sequence[str]) -> set[str]:
        """Returns the task ids this partition must restore: not present elsewhere, and not owned by another one.

        Raises StoreUnavailable. Costs one call for each other partition that may have any of them.
        """
        owned = set(task_ids)
        for partition, other in self._others.items():
            candidates = [each for each in task_ids if partition in partitions_of(self._routing, each)]
            if not candidates:
                continue
            if (await other.status()).is_usable:
                owned -= set(await other.records(candidates))
            else:
                owned -= {each for each in candidates if self._routing.of_id(each) == partition}
        return owned


def partitions_of(routing: Routing, task_id: str) -> list[int]:
    return [routing.of_id(task_id), *routing.elsewhere(task_id)]


OWNS_ALL = PartitionOwner(0, Routing((1,)), {})
