"""Which partition a task, an idempotency key or a chosen id belongs to.

Ids made here contain their partition. Keys, and ids that submitters chose, are spread over the number of partitions, so
another number gives another partition. While the number grows both are configured (`TIDEQ_PARTITIONS=2,8`): new keys
and ids are placed by the first number, and looked up by all numbers. The largest number is the number of partitions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from tideq.queue_core.task_id import partition_of

Row = TypeVar("Row")
Answered = TypeVar("Answered")


class Routing:
    def __init__(self, numbers: Sequence[int]) -> None:
        self.count = max(numbers)
        self.numbers = tuple(numbers)

    def of_id(self, task_id: str) -> int:
        """The partition in which a task is looked up first; certain for ids made here."""
        return _byte(task_id) % self.count

    def elsewhere(self, task_id: str) -> list[int]:
        """The other partitions in which an earlier number may have placed a chosen id. 1 always counts as one."""
        partitions = dict.fromkeys(_byte(task_id) % number for number in (*self.numbers, 1))
        return [each for each in partitions if each != self.of_id(task_id)]

    def of_key(self, name: str) -> list[int]:
        """The partition of a new key, then the others in which it may lie; `name` as `idempotency_name` makes it."""
        return _unique(int(name[:12], 16) % number for number in self.numbers)

    def of_chosen_id(self, task_id: str) -> list[int]:
        """The partition of a new task with an id that its submitter chose, then the others in which it may lie."""
        return _unique(_byte(task_id) % number for number in self.numbers)


async def by_partition(
    partitions: Sequence[int],
    rows: Sequence[Row],
    call: Callable[[int, list[Row]], Awaitable[Sequence[Answered]]],
) -> list[Answered]:
    """Sends each row to its partition, one call a partition, all at once. The answers are in the order of the rows."""
    numbers_by_partition: dict[int, list[int]] = {}
    for number, partition in enumerate(partitions):
        numbers_by_partition.setdefault(partition, []).append(number)
    groups = list(numbers_by_partition.items())
    if len(groups) == 1:
        return list(await call(groups[0][0], list(rows)))
    answers = await asyncio.gather(*(call(each, [rows[n] for n in numbers]) for each, numbers in groups))
    by_number = {
        n: each
        for (_, numbers), some in zip(groups, answers, strict=True)
        for n, each in zip(numbers, some, strict=True)
    }
    return [by_number[number] for number in range(len(rows))]


async def by_task_id(
    routing: Routing,
    rows: Sequence[Row],
    id_of: Callable[[Row], str],
    call: Callable[[int, list[Row]], Awaitable[Sequence[Answered]]],
    is_missing: Callable[[Answered], bool],
) -> list[Answered]:
    """The same by the rows' task ids. A task missing in its partition is looked up where earlier numbers placed it."""
    ids = [id_of(row) for row in rows]
    found = await by_partition([routing.of_id(task_id) for task_id in ids], rows, call)
    for attempt in range(routing.count):
        left = [n for n, each in enumerate(found) if is_missing(each) and len(routing.elsewhere(ids[n])) > attempt]
        if not left:
            break
        partitions = [routing.elsewhere(ids[n])[attempt] for n in left]
        for n, each in zip(left, await by_partition(partitions, [rows[n] for n in left], call), strict=True):
            found[n] = found[n] if is_missing(each) else each
    return found


def places_of_byte(routing: Routing, byte: int) -> list[int]:
    """The partitions in which tasks with this byte in their id may lie."""
    return _unique(byte % number for number in (routing.count, *routing.numbers, 1))


def _byte(task_id: str) -> int:
    """Returns 0 for text that is not an id: the partition refuses it."""
    try:
        return partition_of(task_id)
    except (ValueError, AttributeError):
        return 0


def _unique(partitions: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(partitions))
