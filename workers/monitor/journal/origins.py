"""Where tasks come from: asked of the store once a task, and remembered while it lives."""

import itertools
from collections.abc import Sequence

from tideq.queue_core.outbox.monitor_cursor import UNKNOWN, MonitorCursor, Origin
from tideq.workers.monitor.journal.transition import ObservedTransition

MAX_KNOWN = 100_000
"""Tasks whose origin is remembered: one that is forgotten is asked about again."""


class Origins:
    def __init__(self, store: MonitorCursor, max_known: int = MAX_KNOWN) -> None:
        self._store = store
        self._max_known = max_known
        self._known: dict[bytes, Origin] = {}

    @property
    def known_count(self) -> int:
        return len(self._known)

    async def fill_in(self, transitions: Sequence[ObservedTransition]) -> None:
        known = self._known
        wanted = list({each.task_key: None for each in transitions if each.task_key not in known})
        known.update(zip(wanted, await self._store.origins(wanted), strict=True))
        for each in transitions:
            each.origin = known.get(each.task_key, UNKNOWN)
        for each in transitions:
            if each.is_end:
                known.pop(each.task_key, None)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Those that were asked about first: tasks that wait for long cost another question, and no memory."""
        excess = len(self._known) - self._max_known
        for task_key in list(itertools.islice(self._known, max(excess, 0))):
            del self._known[task_key]
