"""Chooses the partition of each submission, which one script writes there: all tasks or none.

Tasks without a key or a chosen id go to any partition that answers. A chosen id decides its partition. Tasks with a key
go to the key's partition. A batch whose keys belong to several partitions goes to the partition of the first key, and
the other keys point there (`key_reservation.py`).
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from tideq.queue_core.errors import InvalidTask, Overloaded, QueueError, StoreUnavailable, TooManyNew, Unavailable
from tideq.queue_core.partition import ALL, AdmissionTerms, Partition, Written
from tideq.queue_core.partitioning.admission import AdmissionEntry, Admissions, Demand
from tideq.queue_core.partitioning.key_reservation import KeyReservation
from tideq.queue_core.partitioning.partition_health import PartitionHealth, is_untouched
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.submission import idempotency_name, share_one_key
from tideq.queue_core.task import NewTask, Submitted


class Home(NamedTuple):
    """The partition that a key or a chosen id belongs to."""

    row: int
    partitions: list[int]
    """Its partition, then those that earlier numbers of partitions may have chosen."""
    lookup: tuple[str, str]
    """As `find_existing` takes it: the key's name and the id, one of them empty."""


class Placed(NamedTuple):
    partition: int
    written: Written


class SubmitRouter:
    def __init__(
        self, parts: Sequence[Partition], routing: Routing, health: PartitionHealth, admissions: Admissions
    ) -> None:
        self._parts = parts
        self._routing = routing
        self._health = health
        self._admissions = admissions
        self._key_reservation = KeyReservation(parts)
        self._turn = random.randrange(routing.count)

    async def submit(self, tasks: Sequence[NewTask], *, include_position: bool) -> list[Submitted]:
        """A batch of which only some are new is let in if there is room for these, as with one partition."""
        demand = self._admissions.demand(tasks)
        entry = await self._admissions.enter(demand)
        try:
            return await self._enter(tasks, entry, include_position=include_position)
        except TooManyNew as found:
            if (found.new_count, found.urgency) == (demand.task_count, demand.urgency):
                raise entry.refusal or found from None
            fewer = Demand(demand.client_id, found.new_count, found.urgency, is_exact=True)
        entry = await self._admissions.enter(fewer)
        try:
            return await self._enter(tasks, entry, include_position=include_position)
        except TooManyNew:
            changed = StoreUnavailable("tasks of this submission were removed meanwhile: try again", is_untouched=True)
            raise entry.refusal or changed from None

    async def _enter(
        self, tasks: Sequence[NewTask], entry: AdmissionEntry, *, include_position: bool
    ) -> list[Submitted]:
        try:
            partition, written = await self._place(tasks, entry.admission, include_position=include_position)
        except BaseException as error:
            await self._leave_failed(entry, error)
            raise
        answers = written.submitted
        new_count = sum(answer.is_new for answer in answers)
        bucket = await self._admissions.leave(entry, new_count, partition, written.counted)
        return [msgspec.structs.replace(answer, bucket=bucket) for answer in answers] if bucket else answers

    async def _leave_failed(self, entry: AdmissionEntry, error: BaseException) -> None:
        if isinstance(error, QueueError) and (not isinstance(error, Unavailable) or is_untouched(error)):
            await self._admissions.leave(entry)
        else:
            self._admissions.abandon(entry)

    async def _place(self, tasks: Sequence[NewTask], admission: AdmissionTerms, *, include_position: bool) -> Placed:
        keys, ids = await self._homes(tasks)
        partition = self._partition_of(tasks, keys, ids)
        if partition is None:
            return await self._submit_anywhere(tasks, admission, include_position=include_position)
        if all(home == partition for home in keys.values()):
            call = self._call(partition, tasks, admission, include_position=include_position)
        else:
            call = self._submit_reserving_keys(partition, tasks, keys, admission, include_position=include_position)
        try:
            return Placed(partition, await self._key_reservation.retry_while_pending(partition, call))
        except Unavailable as error:
            self._health.record(partition, error)
            raise

    async def _submit_anywhere(
        self, tasks: Sequence[NewTask], admission: AdmissionTerms, *, include_position: bool
    ) -> Placed:
        """Tries another partition only after a call that certainly wrote nothing; other errors go to the caller."""
        refusal: QueueError = StoreUnavailable("no partition answers", is_untouched=True)
        for partition in await self._candidates():
            try:
                written = await self._call(partition, tasks, admission, include_position=include_position)()
            except Overloaded as error:
                refusal = error
            except Unavailable as error:
                self._health.record(partition, error)
                refusal = error
                if not is_untouched(error):
                    raise
            else:
                return Placed(partition, written)
        raise refusal

    async def _candidates(self) -> list[int]:
        """The partitions that answer, in turn. A partition that was away must answer an empty query first."""
        if retryable := self._health.retryable():
            await self._health.call(retryable, lambda each: self._parts[each].find_existing([]))
        chosen = self._health.up
        self._turn += 1
        first = self._turn % max(len(chosen), 1)
        return chosen[first:] + chosen[:first]

    def _call(
        self, partition: int, tasks: Sequence[NewTask], admission: AdmissionTerms, *, include_position: bool
    ) -> Callable[[], Awaitable[Written]]:
        """A single task may share its call with others that arrive at the same moment."""
        part = self._parts[partition]

        async def submit() -> Written:
            if len(tasks) == 1 and include_position and admission == ALL:
                return Written([await part.submit(tasks[0])], None)
            return await part.submit_many(tasks, include_position=include_position, admission=admission)

        return submit

    def _submit_reserving_keys(
        self,
        partition: int,
        tasks: Sequence[NewTask],
        keys: dict[int, int],
        admission: AdmissionTerms,
        *,
        include_position: bool,
    ) -> Callable[[], Awaitable[Written]]:
        async def submit() -> Written:
            return await self._key_reservation.submit(
                partition, tasks, keys, include_position=include_position, admission=admission
            )

        return submit

    async def _homes(self, tasks: Sequence[NewTask]) -> tuple[dict[int, int], dict[int, int]]:
        """The partitions of the tasks' keys and of their chosen ids, by row. The last row stands for a shared key."""
        if share_one_key(tasks):
            (partition,) = await self._partitions([self._key_home(len(tasks) - 1, tasks[-1])])
            return dict.fromkeys(range(len(tasks)), partition), {}
        keys = [self._key_home(row, task) for row, task in enumerate(tasks) if task.idempotency_key is not None]
        ids = [
            Home(row, self._routing.of_chosen_id(task.task_id), ("", task.task_id))
            for row, task in enumerate(tasks)
            if task.task_id is not None
        ]
        key_partitions, id_partitions = await self._partitions(keys), await self._partitions(ids)
        return (
            {home.row: partition for home, partition in zip(keys, key_partitions, strict=True)},
            {home.row: partition for home, partition in zip(ids, id_partitions, strict=True)},
        )

    def _key_home(self, row: int, task: NewTask) -> Home:
        name = idempotency_name(task.client_id, task.idempotency_key or "")
        return Home(row, self._routing.of_key(_home_name(task)), (name, ""))

    def _partition_of(self, tasks: Sequence[NewTask], keys: dict[int, int], ids: dict[int, int]) -> int | None:
        """The partition of the whole batch, None for any. A key of the whole batch and chosen ids leave no choice."""
        batch_homes = (home for row, home in keys.items() if tasks[row].batch_size)
        partition = next((each for homes in (batch_homes, ids.values()) for each in homes), None)
        for row, home in ids.items():
            if home != partition:
                error = InvalidTask(
                    "task_id", "lies in another partition than the rest of its batch: submit it by itself"
                )
                error.row = row
                raise error
        return next(iter(keys.values()), None) if partition is None else partition

    async def _partitions(self, homes: Sequence[Home]) -> list[int]:
        """Of each home the partition in which it exists already, else its own."""
        partitions = [home.partitions[0] for home in homes]
        lookups: dict[int, list[int]] = {}
        for at, home in enumerate(homes):
            for partition in home.partitions[1:]:
                lookups.setdefault(partition, []).append(at)
        for partition, numbers in lookups.items():
            existing = await self._parts[partition].find_existing([homes[at].lookup for at in numbers])
            for at, is_existing in zip(numbers, existing, strict=True):
                partitions[at] = partition if is_existing else partitions[at]
        return partitions


def _home_name(task: NewTask) -> str:
    """The tasks of a batch with one key have that key and their index; the shared part decides."""
    key = task.idempotency_key or ""
    return idempotency_name(task.client_id, key.rpartition("/")[0] if task.batch_size else key)
