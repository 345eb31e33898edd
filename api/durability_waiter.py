"""Durability levels above the default: refused before the submission where not available, awaited after it otherwise.

Never a silent downgrade: a level that is not reached in time is an error with the id of the task, which stays accepted.
"""

from collections.abc import Collection, Sequence

from tideq.persistence.read.lag import HistoryLag
from tideq.queue_core.durability import Durability
from tideq.queue_core.errors import DurabilityNotReached, DurabilityUnavailable, Unavailable
from tideq.queue_core.store.replica_wait import ReplicaWait


class DurabilityWaiter:
    """`catch_up` is None where there is no history."""

    def __init__(self, replica_wait: ReplicaWait, catch_up: HistoryLag | None, timeout_ms: int) -> None:
        self._replica_wait = replica_wait
        self._catch_up = catch_up
        self._timeout_ms = timeout_ms

    async def check(self, levels: Collection[Durability]) -> None:
        """Raises `DurabilityUnavailable`; to be called before anything is written."""
        for level in levels:
            if level is Durability.HISTORY and self._catch_up is None:
                raise DurabilityUnavailable(level, "there is no history; set DATABASE_URL")
            if level in (Durability.REPLICA, Durability.DISK):
                await self._replica_wait.check(level)

    async def wait(self, levels: Collection[Durability], *task_ids: str) -> None:
        """Raises `DurabilityNotReached`, with the first task of the batch. Does nothing without task ids."""
        if not task_ids:
            return
        for level in sorted(levels):
            if level is not Durability.STORE and not await self._reaches(level, task_ids):
                raise DurabilityNotReached(task_ids[0], level, Durability.STORE)

    async def _reaches(self, level: Durability, task_ids: Sequence[str]) -> bool:
        """False also if the store or history is unreachable: the task is accepted, so the error must carry its id."""
        try:
            if level is not Durability.HISTORY:
                return await self._replica_wait.wait_for_copies(level, self._timeout_ms, task_ids)
            seconds = self._timeout_ms / 1000
            return self._catch_up is not None and await self._catch_up.wait_until_caught_up(seconds, has_written=True)
        except Unavailable:
            return False
