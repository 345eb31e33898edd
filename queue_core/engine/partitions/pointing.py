"""A batch whose idempotency keys belong to several partitions, written to one of them by one script: all or none.

Its keys are taken in each partition they belong to, in ascending order, so that two batches with the same keys never
wait for each other. Until the batch is written they are *pending*: a submission that meets such a key looks where it
points to. Then they are confirmed, and stand for tasks of another partition from there on. What a process that died
left pending is settled by the next one that meets it: the batch was written or, once its time is over, never will be.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from tideq.queue_core.engine.partitions.health import is_untouched
from tideq.queue_core.engine.queue import Admission, Queue, Written
from tideq.queue_core.engine.submission import Prepared
from tideq.queue_core.errors import KeyPending, QueueError, StoreUnavailable, Unavailable
from tideq.queue_core.task import NewTask, Submitted

WAIT_SECONDS = 2.0
PAUSE_SECONDS = 0.01
TAKING_SECONDS = 4.0
WRITING_MS = 5_000
"""A pending key lasts ten seconds (`point.lua`): longer than it takes to take all of them and then to write."""

T = TypeVar("T")
Rows = Mapping[int, list[int]]
"""By partition, which tasks of the batch have their keys there."""


class Pointing:
    def __init__(self, parts: Sequence[Queue]) -> None:
        self._parts = parts

    async def submit(
        self,
        partition: int,
        tasks: Sequence[NewTask],
        homes: Mapping[int, int],
        *,
        wants_position: bool,
        admission: Admission,
    ) -> Written:
        """`homes` says by its place in the batch where a task's key belongs."""
        prepared = await self._parts[partition].prepare(tasks)
        by_home: dict[int, list[int]] = {partition: []}
        for number, home in homes.items():
            by_home.setdefault(home, []).append(number)
        taken: dict[int, list[int]] = {}
        is_sent = False
        try:
            known, not_after = await self._take(partition, prepared, by_home, taken)
            fresh = [number for number in range(len(tasks)) if number not in known]
            is_sent = bool(fresh)
            written = await self._write(
                partition,
                [prepared[number] for number in fresh],
                tasks[0].client_id,
                wants_position,
                admission,
                not_after,
            )
        except BaseException as error:
            if not is_sent or (isinstance(error, QueueError) and _is_certain(error)):
                await self._settle(prepared, taken, is_written=False)
            raise
        new = dict(zip(fresh, written.submitted, strict=True))
        made = {home: [each for each in numbers if new[each].is_new] for home, numbers in taken.items()}
        others = {home: [each for each in numbers if not new[each].is_new] for home, numbers in taken.items()}
        await self._settle(prepared, others, is_written=False)
        await self._settle(prepared, made, is_written=True)
        answers = [
            new[number] if number in new else Submitted(known[number], False, None, None, None, not_after - WRITING_MS)
            for number in range(len(tasks))
        ]
        return Written(answers, written.counted)

    async def settling(self, home: int, call: Callable[[], Awaitable[T]]) -> T:
        """The call, again and again while a key it needs there is in the hands of another batch."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return await call()
            except KeyPending as met:
                if not await self._settle_met(home, met) and time.monotonic() > deadline:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)

    async def _take(
        self, partition: int, prepared: Sequence[Prepared], by_home: Rows, taken: dict[int, list[int]]
    ) -> tuple[dict[int, str], int]:
        """Which tasks are known already, and until when the others may be written."""
        known: dict[int, str] = {}
        not_after, began = 0, time.monotonic()
        for home in sorted(by_home):
            numbers = by_home[home]
            rows = [(prepared[number].task_id, prepared[number].idempotency) for number in numbers]
            now_ms, told = await self.settling(
                home, lambda home=home, rows=rows: self._parts[home].point(partition, rows)
            )
            known |= {number: task_id for number, task_id in zip(numbers, told, strict=True) if task_id}
            taken[home] = [number for number in numbers if number not in known]
            if home == partition:
                not_after = now_ms + WRITING_MS
        if time.monotonic() - began > TAKING_SECONDS:
            raise StoreUnavailable("the partitions of a batch's keys answer too slowly", is_untouched=True)
        return known, not_after

    async def _write(
        self,
        partition: int,
        fresh: Sequence[Prepared],
        client_id: str,
        wants_position: bool,
        admission: Admission,
        not_after: int,
    ) -> Written:
        if not fresh:
            return Written([], None)
        return await self._parts[partition].submit_prepared(
            client_id, fresh, wants_position=wants_position, admission=admission, not_after=not_after
        )

    async def _settle(self, prepared: Sequence[Prepared], taken: Rows, *, is_written: bool) -> None:
        """What cannot be settled now is by whoever meets it."""

        async def confirm(home: int, numbers: Sequence[int]) -> None:
            rows = [(prepared[each].task_id, prepared[each].idempotency.partition(" ")[0]) for each in numbers]
            await self._parts[home].confirm(rows, is_written=is_written)

        told = await asyncio.gather(
            *(confirm(home, numbers) for home, numbers in taken.items() if numbers), return_exceptions=True
        )
        for each in told:
            if isinstance(each, BaseException) and not isinstance(each, Unavailable):
                raise each

    async def _settle_met(self, home: int, met: KeyPending) -> bool:
        """The partition that was pointed to has the key itself, once the batch was written there."""
        (is_written,) = await self._parts[met.partition].known([(met.name, "")])
        if is_written or met.is_overdue:
            await self._parts[home].confirm([(met.key_task_id, met.name)], is_written=is_written)
        return is_written or met.is_overdue


def _is_certain(error: QueueError) -> bool:
    """That nothing was written."""
    return not isinstance(error, Unavailable) or is_untouched(error)
