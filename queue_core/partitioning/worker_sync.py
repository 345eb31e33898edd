"""A worker belongs to all partitions: one that does not know it, because it is new or had given it up, is told again.

What such a partition took back from the worker stays taken back: its lease there is void, as any other's.
"""

import contextlib
from collections.abc import Mapping, Sequence

from tideq.queue_core.errors import Unavailable, UnknownWorker, WorkerExists
from tideq.queue_core.fleet import Fleet, Word
from tideq.queue_core.partitioning.partition_health import PartitionHealth


class WorkerSync:
    def __init__(self, parts: Sequence[Fleet], health: PartitionHealth) -> None:
        self._parts = parts
        self._health = health

    async def register_missing(
        self, worker_id: str, failures: Mapping[int, Exception], *, has_friends: bool
    ) -> list[int]:
        """Which of the partitions that failed know the worker now. Raises where there is nothing left to go by."""
        for error in failures.values():
            if not isinstance(error, Unavailable | UnknownWorker):
                raise error
        strangers = [each for each, error in failures.items() if isinstance(error, UnknownWorker)]
        if not has_friends and failures:
            raise failures[strangers[0]] if strangers else next(iter(failures.values()))
        return await self._introduce(worker_id, strangers) if strangers else []

    async def _introduce(self, worker_id: str, strangers: Sequence[int]) -> list[int]:
        """Not a worker on its way out: it may be leaving one partition after the other just now."""
        others = [each for each in self._health.up if each not in strangers]
        told = await self._health.call(others, lambda each: self._parts[each].get(worker_id))
        known = [each for each in told.values() if not isinstance(each, Exception) and each.verdict != "dead"]
        if not known or any(each.verdict == "draining" for each in known):
            return []
        is_healthy = all(each.verdict == "active" for each in known)
        words = {each.word for each in known}
        word: Word | None = "draining" if "draining" in words else "unhealthy" if "unhealthy" in words else None
        joined: list[int] = []
        for partition in strangers:
            with contextlib.suppress(WorkerExists):
                await self._parts[partition].register(known[0].worker)
            if not is_healthy:
                await self._parts[partition].set_health(worker_id, is_healthy=False)
            if word:
                await self._parts[partition].heartbeat(worker_id, word=word)
            joined.append(partition)
        return joined
