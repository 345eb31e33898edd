"""The origins of tasks: read from the store once for each task and cached until the task ends."""

import itertools
from collections.abc import Sequence

from tideq.queue_core.outbox.monitor_cursor import UNKNOWN, MonitorCursor, Origin
from tideq.workers.monitor.journal.transition import ObservedTransition

MAX_CACHED = 100_000
"""Cached origins; an evicted origin is read again."""


class Origins:
    def __init__(self, store: MonitorCursor, max_entries: int = MAX_CACHED) -> None:
        self._store = store
        self._max_entries = max_entries
        self._cached: dict[bytes, Origin] = {}

    @property
    def cached_count(self) -> int:
        return len(self._cached)

    async def fill_in(self, transitions: Sequence[ObservedTransition]) -> None:
        cached = self._cached
        missing = list({each.task_key: None for each in transitions if each.task_key not in cached})
        cached.update(zip(missing, await self._store.origins(missing), strict=True))
        for each in transitions:
            each.origin = cached.get(each.task_key, UNKNOWN)
        for each in transitions:
            if each.is_end:
                cached.pop(each.task_key, None)
        self._evict_oldest()

    def _evict_oldest(self) -> None:
        """Bounds memory: tasks that wait for long cost another read."""
        excess = len(self._cached) - self._max_entries
        for task_key in list(itertools.islice(self._cached, max(excess, 0))):
            del self._cached[task_key]
