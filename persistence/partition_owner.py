"""Which tasks of history belong to one partition of the store.

An id made by the queue says it itself. One that its submitter chose may lie where an earlier number of partitions had
put it, so whether it is anywhere else is looked up; what is nowhere comes back where its id says.
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
    def bytes(self) -> list[int] | None:
        """The partitions inside the ids of tasks that may belong here; None for any."""
        if self._routing.count == 1:
            return None
        return [byte for byte in range(256) if self._partition in places_of_byte(self._routing, byte)]

    @property
    def keys(self) -> tuple[list[int], int]:
        """By which numbers keys' names are divided, and the rest that says that they belong here."""
        return list(self._routing.numbers), self._partition

    async def own(self, task_ids: Sequence[str]) -> set[str]:
        """Those that no other partition has, and that none with a better right to them will take back."""
        own = set(task_ids)
        for place, other in self._others.items():
            asked = [each for each in task_ids if place in partitions_of(self._routing, each)]
            if not asked:
                continue
            if (await other.status()).is_usable:
                own -= set(await other.records(asked))
            else:
                own -= {each for each in asked if self._routing.of_id(each) == place}
        return own


def partitions_of(routing: Routing, task_id: str) -> list[int]:
    return [routing.of_id(task_id), *routing.elsewhere(task_id)]


EVERYTHING = PartitionOwner(0, Routing((1,)), {})
