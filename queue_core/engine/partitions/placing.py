"""Submissions to several partitions: which one takes what. Each is written by one script to one partition: all or none.

Tasks without a key or a chosen id go to one partition that is well. Ids that submitters chose say where they lie. A
key's tasks go where the key belongs, and a batch whose keys belong to several partitions goes where the first of them
does: the others point there (`pointing.py`).
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from tideq.queue_core.engine.partitions.admission import Admissions, Demand, Entry
from tideq.queue_core.engine.partitions.health import Health, is_untouched
from tideq.queue_core.engine.partitions.pointing import Pointing
from tideq.queue_core.engine.partitions.routing import Routing
from tideq.queue_core.engine.queue import ALL, Admission, Queue, Written
from tideq.queue_core.engine.submission import idempotency_name, share_one_key
from tideq.queue_core.errors import InvalidTask, Overloaded, QueueError, StoreUnavailable, TooManyNew, Unavailable
from tideq.queue_core.task import NewTask, Submitted


class Home(NamedTuple):
    """Where a key or a chosen id belongs."""

    row: int
    places: list[int]
    """Then where else an earlier number of partitions may have put it."""
    marks: tuple[str, str]
    """As `known` takes them: the key's name, or the id."""


class Placed(NamedTuple):
    partition: int
    written: Written


class Placing:
    def __init__(self, parts: Sequence[Queue], routing: Routing, health: Health, admissions: Admissions) -> None:
        self._parts = parts
        self._routing = routing
        self._health = health
        self._admissions = admissions
        self._pointing = Pointing(parts)
        self._turn = random.randrange(routing.count)

    async def submit(self, tasks: Sequence[NewTask], *, wants_position: bool) -> list[Submitted]:
        """A batch of which only some are new is let in if there is room for these, as with one partition."""
        demand = self._admissions.demand(tasks)
        entry = await self._admissions.enter(demand)
        try:
            return await self._enter(tasks, entry, wants_position=wants_position)
        except TooManyNew as found:
            if (found.new_count, found.urgency) == (demand.task_count, demand.urgency):
                raise entry.refusal or found from None
            fewer = Demand(demand.client_id, found.new_count, found.urgency, is_exact=True)
        entry = await self._admissions.enter(fewer)
        try:
            return await self._enter(tasks, entry, wants_position=wants_position)
        except TooManyNew:
            changed = StoreUnavailable("tasks that were known are not known any more: try again", is_untouched=True)
            raise entry.refusal or changed from None

    async def _enter(self, tasks: Sequence[NewTask], entry: Entry, *, wants_position: bool) -> list[Submitted]:
        try:
            partition, written = await self._place(tasks, entry.admission, wants_position=wants_position)
        except BaseException as error:
            await self._give_up(entry, error)
            raise
        answers = written.submitted
        new_count = sum(answer.is_new for answer in answers)
        bucket = await self._admissions.leave(entry, new_count, partition, written.counted)
        return [msgspec.structs.replace(answer, bucket=bucket) for answer in answers] if bucket else answers

    async def _give_up(self, entry: Entry, error: BaseException) -> None:
        if isinstance(error, QueueError) and (not isinstance(error, Unavailable) or is_untouched(error)):
            await self._admissions.leave(entry)
        else:
            self._admissions.abandon(entry)

    async def _place(self, tasks: Sequence[NewTask], admission: Admission, *, wants_position: bool) -> Placed:
        keys, ids = await self._homes(tasks)
        partition = self._partition_of(tasks, keys, ids)
        if partition is None:
            return await self._submit_anywhere(tasks, admission, wants_position=wants_position)
        if all(home == partition for home in keys.values()):
            call = self._call(partition, tasks, admission, wants_position=wants_position)
        else:
            call = self._point(partition, tasks, keys, admission, wants_position=wants_position)
        try:
            return Placed(partition, await self._pointing.settling(partition, call))
        except Unavailable as error:
            self._health.note(partition, error)
            raise

    async def _submit_anywhere(self, tasks: Sequence[NewTask], admission: Admission, *, wants_position: bool) -> Placed:
        """What is certain to have changed nothing is tried elsewhere; anything else the submitter must decide."""
        refusal: QueueError = StoreUnavailable("no partition answers", is_untouched=True)
        for partition in await self._candidates():
            try:
                written = await self._call(partition, tasks, admission, wants_position=wants_position)()
            except Overloaded as error:
                refusal = error
            except Unavailable as error:
                self._health.note(partition, error)
                refusal = error
                if not is_untouched(error):
                    raise
            else:
                return Placed(partition, written)
        raise refusal

    async def _candidates(self) -> list[int]:
        """Those that are well, in turn. One that was away is asked a question before it is trusted again."""
        if rested := self._health.rested():
            await self._health.ask(rested, lambda each: self._parts[each].known([]))
        chosen = self._health.well
        self._turn += 1
        first = self._turn % max(len(chosen), 1)
        return chosen[first:] + chosen[:first]

    def _call(
        self, partition: int, tasks: Sequence[NewTask], admission: Admission, *, wants_position: bool
    ) -> Callable[[], Awaitable[Written]]:
        """One alone may share its call with others that come at the same moment."""
        part = self._parts[partition]

        async def submit() -> Written:
            if len(tasks) == 1 and wants_position and admission == ALL:
                return Written([await part.submit(tasks[0])], None)
            return await part.submit_here(tasks, wants_position=wants_position, admission=admission)

        return submit

    def _point(
        self,
        partition: int,
        tasks: Sequence[NewTask],
        keys: dict[int, int],
        admission: Admission,
        *,
        wants_position: bool,
    ) -> Callable[[], Awaitable[Written]]:
        async def submit() -> Written:
            return await self._pointing.submit(
                partition, tasks, keys, wants_position=wants_position, admission=admission
            )

        return submit

    async def _homes(self, tasks: Sequence[NewTask]) -> tuple[dict[int, int], dict[int, int]]:
        """By rows, where the tasks' keys are and where their chosen ids lie. Of one key for all the last row tells."""
        if share_one_key(tasks):
            (place,) = await self._places([self._key_home(len(tasks) - 1, tasks[-1])])
            return dict.fromkeys(range(len(tasks)), place), {}
        keys = [self._key_home(row, task) for row, task in enumerate(tasks) if task.idempotency_key is not None]
        ids = [
            Home(row, self._routing.of_chosen_id(task.task_id), ("", task.task_id))
            for row, task in enumerate(tasks)
            if task.task_id is not None
        ]
        key_places, id_places = await self._places(keys), await self._places(ids)
        return (
            {home.row: place for home, place in zip(keys, key_places, strict=True)},
            {home.row: place for home, place in zip(ids, id_places, strict=True)},
        )

    def _key_home(self, row: int, task: NewTask) -> Home:
        name = idempotency_name(task.client_id, task.idempotency_key or "")
        return Home(row, self._routing.of_key(_home_name(task)), (name, ""))

    def _partition_of(self, tasks: Sequence[NewTask], keys: dict[int, int], ids: dict[int, int]) -> int | None:
        """Where all of them can lie, None for anywhere. A key of the whole batch and chosen ids leave no choice."""
        batch_homes = (home for row, home in keys.items() if tasks[row].batch_size)
        partition = next((place for places in (batch_homes, ids.values()) for place in places), None)
        for row, home in ids.items():
            if home != partition:
                error = InvalidTask(
                    "task_id", "lies in another partition than the rest of its batch: submit it by itself"
                )
                error.row = row
                raise error
        return next(iter(keys.values()), None) if partition is None else partition

    async def _places(self, homes: Sequence[Home]) -> list[int]:
        """Where it is known already, else where it belongs."""
        places = [home.places[0] for home in homes]
        asked: dict[int, list[int]] = {}
        for at, home in enumerate(homes):
            for partition in home.places[1:]:
                asked.setdefault(partition, []).append(at)
        for partition, numbers in asked.items():
            known = await self._parts[partition].known([homes[at].marks for at in numbers])
            for at, is_known in zip(numbers, known, strict=True):
                places[at] = partition if is_known else places[at]
        return places


def _home_name(task: NewTask) -> str:
    """Of a batch that shares a key, its tasks have that key and their places: what they share decides."""
    key = task.idempotency_key or ""
    return idempotency_name(task.client_id, key.rpartition("/")[0] if task.batch_size else key)
