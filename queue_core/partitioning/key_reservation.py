"""A batch whose idempotency keys belong to several partitions, written to one of them by one script: all or none.

Its keys are reserved in each partition they belong to, in ascending order, so that two batches with the same keys never
wait for each other. Until the batch is written the keys are *pending*: a submission that meets such a key checks the
partition the key points to. Once the batch is written the keys become valid, and stand for tasks of another partition
from there on. Keys that a process left pending when it died are settled by the next submission that meets them: the
batch was written or, once its time is over, never will be.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from tideq.queue_core.errors import KeyPending, QueueError, StoreUnavailable, Unavailable
from tideq.queue_core.partition import AdmissionTerms, Partition, Written
from tideq.queue_core.partitioning.partition_health import is_untouched
from tideq.queue_core.submission import Prepared
from tideq.queue_core.task import NewTask, Submitted

WAIT_SECONDS = 2.0
PAUSE_SECONDS = 0.01
RESERVING_SECONDS = 4.0
WRITING_MS = 5_000
"""A pending key lasts ten seconds (`reserve_keys.lua`): longer than reserving all keys and then writing takes."""

T = TypeVar("T")
Rows = Mapping[int, list[int]]
"""By partition, the indexes of the batch's tasks whose keys belong there."""


class KeyReservation:
    def __init__(self, parts: Sequence[Partition]) -> None:
        self._parts = parts

    async def submit(
        self,
        partition: int,
        tasks: Sequence[NewTask],
        homes: Mapping[int, int],
        *,
        include_position: bool,
        admission: AdmissionTerms,
    ) -> Written:
        """`homes` maps the index of a task to the partition that its key belongs to."""
        prepared = await self._parts[partition].prepare(tasks)
        by_home: dict[int, list[int]] = {partition: []}
        for number, home in homes.items():
            by_home.setdefault(home, []).append(number)
        reserved: dict[int, list[int]] = {}
        is_sent = False
        try:
            existing, not_after = await self._reserve(partition, prepared, by_home, reserved)
            fresh = [number for number in range(len(tasks)) if number not in existing]
            is_sent = bool(fresh)
            written = await self._write(
                partition,
                [prepared[number] for number in fresh],
                tasks[0].client_id,
                include_position,
                admission,
                not_after,
            )
        except BaseException as error:
            if not is_sent or (isinstance(error, QueueError) and _is_certain(error)):
                await self._settle(prepared, reserved, is_written=False)
            raise
        new = dict(zip(fresh, written.submitted, strict=True))
        made = {home: [each for each in numbers if new[each].is_new] for home, numbers in reserved.items()}
        others = {home: [each for each in numbers if not new[each].is_new] for home, numbers in reserved.items()}
        await self._settle(prepared, others, is_written=False)
        await self._settle(prepared, made, is_written=True)
        answers = [
            new[number]
            if number in new
            else Submitted(existing[number], False, None, None, None, not_after - WRITING_MS)
            for number in range(len(tasks))
        ]
        return Written(answers, written.counted)

    async def retry_while_pending(self, home: int, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats the call while another batch holds a key it needs. Raises `KeyPending` after `WAIT_SECONDS`."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return await call()
            except KeyPending as pending:
                if not await self._settle_pending(home, pending) and time.monotonic() > deadline:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)

    async def _reserve(
        self, partition: int, prepared: Sequence[Prepared], by_home: Rows, reserved: dict[int, list[int]]
    ) -> tuple[dict[int, str], int]:
        """Returns the tasks that exist already, and until when the others may be written."""
        existing: dict[int, str] = {}
        not_after, began = 0, time.monotonic()
        for home in sorted(by_home):
            numbers = by_home[home]
            rows = [(prepared[number].task_id, prepared[number].idempotency) for number in numbers]
            now_ms, task_ids = await self.retry_while_pending(
                home, lambda home=home, rows=rows: self._parts[home].reserve_keys(partition, rows)
            )
            existing |= {number: task_id for number, task_id in zip(numbers, task_ids, strict=True) if task_id}
            reserved[home] = [number for number in numbers if number not in existing]
            if home == partition:
                not_after = now_ms + WRITING_MS
        if time.monotonic() - began > RESERVING_SECONDS:
            raise StoreUnavailable("the partitions of a batch's keys answer too slowly", is_untouched=True)
        return existing, not_after

    async def _write(
        self,
        partition: int,
        fresh: Sequence[Prepared],
        client_id: str,
        include_position: bool,
        admission: AdmissionTerms,
        not_after: int,
    ) -> Written:
        if not fresh:
            return Written([], None)
        return await self._parts[partition].submit_prepared(
            client_id, fresh, include_position=include_position, admission=admission, not_after=not_after
        )

    async def _settle(self, prepared: Sequence[Prepared], reserved: Rows, *, is_written: bool) -> None:
        """Keys that cannot be settled now are settled by the next submission that meets them."""

        async def settle(home: int, numbers: Sequence[int]) -> None:
            rows = [(prepared[each].task_id, prepared[each].idempotency.partition(" ")[0]) for each in numbers]
            await self._parts[home].settle_keys(rows, is_written=is_written)

        results = await asyncio.gather(
            *(settle(home, numbers) for home, numbers in reserved.items() if numbers), return_exceptions=True
        )
        for each in results:
            if isinstance(each, BaseException) and not isinstance(each, Unavailable):
                raise each

    async def _settle_pending(self, home: int, pending: KeyPending) -> bool:
        """Once the batch is written, the partition that the key points to has the key itself."""
        (is_written,) = await self._parts[pending.partition].find_existing([(pending.name, "")])
        if is_written or pending.is_overdue:
            await self._parts[home].settle_keys([(pending.key_task_id, pending.name)], is_written=is_written)
        return is_written or pending.is_overdue


def _is_certain(error: QueueError) -> bool:
    """Whether it is certain that nothing was written."""
    return not isinstance(error, Unavailable) or is_untouched(error)
