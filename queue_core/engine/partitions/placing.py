"""Submissions to several partitions: which one takes what.

Tasks without a key or a chosen id go together to one partition that is well: all or none, as ever. A key's tasks go
where the key belongs, and a batch that shares a key goes where that one belongs. A batch whose keys belong to several
partitions is first rehearsed in all of them, so that whatever can be refused is refused before anything is written;
then it is written one partition after the other, and what has no key last. Should a store fail in between, a part
stands: to repeat the batch completes it and doubles nothing.
"""

import random
from collections.abc import Sequence

from tideq.queue_core.engine.partitions.health import Health, is_untouched
from tideq.queue_core.engine.partitions.routing import Routing
from tideq.queue_core.engine.queue import Queue
from tideq.queue_core.engine.submission import idempotency_name, share_one_key
from tideq.queue_core.errors import InvalidTask, Overloaded, QueueError, StoreUnavailable, Unavailable
from tideq.queue_core.task import NewTask, Submitted

Group = list[tuple[int, NewTask]]
"""Tasks with their places in the batch."""


class Placing:
    def __init__(self, parts: Sequence[Queue], routing: Routing, health: Health) -> None:
        self._parts = parts
        self._routing = routing
        self._health = health
        self._turn = random.randrange(routing.count)

    async def submit(self, tasks: Sequence[NewTask], *, wants_position: bool) -> list[Submitted]:
        groups, free = await self._grouped(tasks)
        if not groups:
            return await self._submit_anywhere(tasks, wants_position=wants_position)
        groups[-1][1].extend(free)
        if len(groups) > 1:
            for partition, group in groups:
                await self._tell(partition, group, is_rehearsal=True)
        answers: dict[int, Submitted] = {}
        for partition, group in groups:
            answers |= await self._tell(partition, group, wants_position=wants_position)
        return [answers[number] for number in range(len(tasks))]

    async def _submit_anywhere(self, tasks: Sequence[NewTask], *, wants_position: bool) -> list[Submitted]:
        """What is certain to have changed nothing is tried elsewhere; anything else the submitter must decide."""
        refusal: QueueError = StoreUnavailable("no partition answers", is_untouched=True)
        for partition in await self._candidates():
            try:
                answers = await _submit(self._parts[partition], tasks, wants_position=wants_position)
            except Overloaded as error:
                refusal = error
            except Unavailable as error:
                self._health.note(partition, error)
                refusal = error
                if not is_untouched(error):
                    raise
            else:
                return answers
        raise refusal

    async def _candidates(self) -> list[int]:
        """Those that are well, in turn. One that was away is asked a question before it is trusted again."""
        if rested := self._health.rested():
            await self._health.ask(rested, lambda each: self._parts[each].known([]))
        chosen = self._health.well
        self._turn += 1
        first = self._turn % max(len(chosen), 1)
        return chosen[first:] + chosen[:first]

    async def _tell(
        self, partition: int, group: Group, *, wants_position: bool = False, is_rehearsal: bool = False
    ) -> dict[int, Submitted]:
        tasks = [task for _, task in group]
        try:
            if is_rehearsal:
                await self._parts[partition].rehearse(tasks)
                return {}
            answers = await _submit(self._parts[partition], tasks, wants_position=wants_position)
        except InvalidTask as error:
            error.row = error.row if error.row is None else group[error.row][0]
            raise
        except Unavailable as error:
            self._health.note(partition, error)
            raise
        return {number: answer for (number, _), answer in zip(group, answers, strict=True)}

    async def _grouped(self, tasks: Sequence[NewTask]) -> tuple[list[tuple[int, Group]], Group]:
        """Tasks that belong to a partition, by it, the largest group last; and those that do not."""
        if share_one_key(tasks):
            (place,) = await self._places([(0, tasks[-1], self._homes(tasks[-1]))])
            return [(place, list(enumerate(tasks)))], []
        free: Group = []
        homes: list[tuple[int, NewTask, list[int]]] = []
        for number, task in enumerate(tasks):
            if task.idempotency_key is None and task.task_id is None:
                free.append((number, task))
            else:
                homes.append((number, task, self._homes(task)))
        groups: dict[int, Group] = {}
        for (number, task, _), place in zip(homes, await self._places(homes), strict=True):
            groups.setdefault(place, []).append((number, task))
        return sorted(groups.items(), key=lambda item: len(item[1])), free

    def _homes(self, task: NewTask) -> list[int]:
        by_id = self._routing.of_chosen_id(task.task_id) if task.task_id is not None else None
        if task.idempotency_key is None:
            return by_id or [0]
        by_key = self._routing.of_key(_home_name(task))
        if by_id is not None and by_id != by_key:
            raise InvalidTask("task_id", "lies in another partition than the idempotency key: leave one of them out")
        return by_key

    async def _places(self, homes: Sequence[tuple[int, NewTask, list[int]]]) -> list[int]:
        """Where it is known already, else where it belongs."""
        places = [where[0] for _, _, where in homes]
        asked: dict[int, list[int]] = {}
        for at, (_, _, where) in enumerate(homes):
            for partition in where[1:]:
                asked.setdefault(partition, []).append(at)
        for partition, numbers in asked.items():
            known = await self._parts[partition].known([_marks(homes[at][1]) for at in numbers])
            for at, is_known in zip(numbers, known, strict=True):
                places[at] = partition if is_known else places[at]
        return places


async def _submit(part: Queue, tasks: Sequence[NewTask], *, wants_position: bool) -> list[Submitted]:
    """One alone may share its call with others that come at the same moment."""
    if len(tasks) == 1 and wants_position:
        return [await part.submit(tasks[0])]
    return await part.submit_many(tasks, wants_position=wants_position)


def _home_name(task: NewTask) -> str:
    """Of a batch that shares a key, its tasks have that key and their places: what they share decides."""
    key = task.idempotency_key or ""
    return idempotency_name(task.client_id, key.rpartition("/")[0] if task.batch_size else key)


def _marks(task: NewTask) -> tuple[str, str]:
    name = "" if task.idempotency_key is None else idempotency_name(task.client_id, task.idempotency_key)
    return name, task.task_id or ""
