"""Calls of lease holders, each row sent to the partition of its task.

With more partitions than a claim peeks at, the worker's home partition also records that one of its tasks failed: the
worker's next claim, through whichever process, then peeks at all partitions.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from tideq.queue_core.attempts import Attempts, Failure, counts_against_worker
from tideq.queue_core.errors import TaskNotFound, Unavailable
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.partition_sampler import MAX_PEEKS, home_of
from tideq.queue_core.partitioning.routing import Routing, by_task_id
from tideq.queue_core.queue import Queue
from tideq.queue_core.scripts.replies import Outcome
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.validation import check_batch

Row = tuple[str | int | float | bytes, ...]


class PartitionedAttempts(Attempts):
    def __init__(
        self,
        parts: Sequence[Attempts],
        queues: Sequence[Queue],
        routing: Routing,
        health: PartitionHealth,
        scripts: Scripts,
        settings: QueueSettings,
    ) -> None:
        super().__init__(scripts, settings)
        self._parts = parts
        self._queues = queues
        self._marks_suspects = len(parts) > MAX_PEEKS and settings.circuit.mode != "off"
        self._routing = routing
        self._health = health

    async def fail(self, worker_id: str, failures: Sequence[Failure]) -> list[Outcome]:
        if not self._marks_suspects or not any(counts_against_worker(failure) for failure in failures):
            return await super().fail(worker_id, failures)
        outcomes, _ = await asyncio.gather(super().fail(worker_id, failures), self._mark_suspect(worker_id))
        return outcomes

    async def _mark_suspect(self, worker_id: str) -> None:
        """Limit: while the home is away the circuit opens later, once a claim peeks at the failures by chance."""
        home = home_of(worker_id, len(self._queues))
        with contextlib.suppress(Unavailable):
            await self._queues[home].mark_suspect(worker_id)

    async def call(self, verb: str, worker_id: str, rows: Sequence[Row]) -> list[Outcome]:
        """A partition that is away fails its own rows only. Raises `Unavailable` if all rows are its own."""
        check_batch(rows)

        async def call_part(part: Attempts, some: list[Row]) -> list[Outcome]:
            try:
                return await part.call(verb, worker_id, some)
            except Unavailable as error:
                self._health.record(self._parts.index(part), error)
                if len(some) == len(rows):
                    raise
                return [Outcome(str(row[0]), error=error) for row in some]

        return await by_task_id(self._routing, self._parts, rows, lambda row: str(row[0]), call_part, is_missing)


def is_missing(outcome: Outcome) -> bool:
    return isinstance(outcome.error, TaskNotFound)
