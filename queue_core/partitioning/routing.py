"""Which partition a task, an idempotency key or a chosen id belongs to.

Ids made here say it themselves. Keys, and ids that submitters chose, are spread by the number of partitions there are,
so another number gives another place. While that number grows both are named (`TIDEQ_PARTITIONS=2,8`): new ones are put
where the first number says, and looked for where the others say as well. There are as many partitions as the largest
number says.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from tideq.queue_core.task_id import partition_of

Part = TypeVar("Part")
Row = TypeVar("Row")
Answered = TypeVar("Answered")


class Routing:
    def __init__(self, numbers: Sequence[int]) -> None:
        self.count = max(numbers)
        self.numbers = tuple(numbers)

    def of_id(self, task_id: str) -> int:
        """Where a task is looked for first: certain for ids made here."""
        return _byte(task_id) % self.count

    def elsewhere(self, task_id: str) -> list[int]:
        """Where else a chosen id may lie: put there by an earlier number, of which 1 is always taken to be one."""
        places = dict.fromkeys(_byte(task_id) % number for number in (*self.numbers, 1))
        return [place for place in places if place != self.of_id(task_id)]

    def of_key(self, name: str) -> list[int]:
        """Where a key is put, then where else it may lie. The name is that of `submission.idempotency_name`."""
        return _unique(int(name[:12], 16) % number for number in self.numbers)

    def of_chosen_id(self, task_id: str) -> list[int]:
        """Where a task with an id that its submitter chose is put, then where else it may lie."""
        return _unique(_byte(task_id) % number for number in self.numbers)


async def by_partition(
    parts: Sequence[Part],
    places: Sequence[int],
    rows: Sequence[Row],
    call: Callable[[Part, list[Row]], Awaitable[Sequence[Answered]]],
) -> list[Answered]:
    """Each row to its partition, one call a partition, all at once; what is told is in the order of the rows."""
    numbers_by_place: dict[int, list[int]] = {}
    for number, place in enumerate(places):
        numbers_by_place.setdefault(place, []).append(number)
    groups = list(numbers_by_place.items())
    if len(groups) == 1:
        return list(await call(parts[groups[0][0]], list(rows)))
    told = await asyncio.gather(*(call(parts[place], [rows[n] for n in numbers]) for place, numbers in groups))
    by_number = {
        n: each for (_, numbers), some in zip(groups, told, strict=True) for n, each in zip(numbers, some, strict=True)
    }
    return [by_number[number] for number in range(len(rows))]


async def by_task_id(
    routing: Routing,
    parts: Sequence[Part],
    rows: Sequence[Row],
    id_of: Callable[[Row], str],
    call: Callable[[Part, list[Row]], Awaitable[Sequence[Answered]]],
    is_missing: Callable[[Answered], bool],
) -> list[Answered]:
    """The same by the rows' task ids; what is not where it should be is looked for where it may have been put once."""
    ids = [id_of(row) for row in rows]
    found = await by_partition(parts, [routing.of_id(task_id) for task_id in ids], rows, call)
    for attempt in range(len(parts)):
        left = [n for n, each in enumerate(found) if is_missing(each) and len(routing.elsewhere(ids[n])) > attempt]
        if not left:
            break
        places = [routing.elsewhere(ids[n])[attempt] for n in left]
        for n, each in zip(left, await by_partition(parts, places, [rows[n] for n in left], call), strict=True):
            found[n] = found[n] if is_missing(each) else each
    return found


def places_of_byte(routing: Routing, byte: int) -> list[int]:
    """Where tasks may lie whose ids say this partition."""
    return _unique(byte % number for number in (routing.count, *routing.numbers, 1))


def _byte(task_id: str) -> int:
    """What is no id at all is for the partition to refuse, whichever it is."""
    try:
        return partition_of(task_id)
    except (ValueError, AttributeError):
        return 0


def _unique(places: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(places))
