"""Submissions that ask for more than the store's word: refused beforehand where it cannot be had, waited for otherwise.

Never a silent downgrade: what was not reached in time is said so, with the id of the task, which stands.
"""

from collections.abc import Collection, Sequence

from tideq.persistence.read.lag import CatchUp
from tideq.queue_core.durability import Durability
from tideq.queue_core.errors import DurabilityNotReached, DurabilityUnavailable, Unavailable
from tideq.queue_core.store.replica_wait import ReplicaWait


class DurabilityWaiter:
    """`freshness` is missing where there is no history."""

    def __init__(self, assurance: ReplicaWait, freshness: CatchUp | None, timeout_ms: int) -> None:
        self._assurance = assurance
        self._freshness = freshness
        self._timeout_ms = timeout_ms

    async def check(self, levels: Collection[Durability]) -> None:
        """Before anything is written."""
        for level in levels:
            if level is Durability.HISTORY and self._freshness is None:
                raise DurabilityUnavailable(level, "there is no history: DATABASE_URL is not set")
            if level in (Durability.REPLICA, Durability.DISK):
                await self._assurance.check(level)

    async def wait(self, levels: Collection[Durability], *task_ids: str) -> None:
        """After the submission; the first task of a batch stands for all of it. None are left where all have ended."""
        if not task_ids:
            return
        for level in sorted(levels):
            if level is not Durability.STORE and not await self._reaches(level, task_ids):
                raise DurabilityNotReached(task_ids[0], level, Durability.STORE)

    async def _reaches(self, level: Durability, task_ids: Sequence[str]) -> bool:
        """The task stands whatever happens now, so its submitter is told its id rather than that something is away."""
        try:
            if level is not Durability.HISTORY:
                return await self._assurance.wait_for_copies(level, self._timeout_ms, task_ids)
            seconds = self._timeout_ms / 1000
            return self._freshness is not None and await self._freshness.wait_until_caught_up(seconds, has_written=True)
        except Unavailable:
            return False
