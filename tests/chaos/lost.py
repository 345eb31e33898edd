"""What a store may lose that is wiped, or replaced by a replica: what history had not heard of, and never what was told
to be in history.

A store that is killed may lose nothing.
"""

import bisect

from tests.chaos.evidence import Evidence, StoreTime
from tests.chaos.notes import Note

MARGIN_MS = 50


class Losses:
    """History is a beginning of what happened. Whatever was told before the last instant it has must be in it."""

    def __init__(self, evidence: Evidence, time: StoreTime) -> None:
        instants = sorted(event.at for event in evidence.all_events())
        self._time = time
        self._wipes: list[tuple[int, int]] = []
        for note in evidence.of("wiped", "failed_over"):
            place = bisect.bisect_right(instants, time.latest(note["t1"]))
            self._wipes.append((note["t1"], instants[place - 1] if place else 0))

    def may_lose(self, note: Note) -> bool:
        """Whether what this note tells of may be undone since."""
        began, told_at = note.get("t0", note["t1"]), self._time.latest(note["t1"])
        return any(began <= wiped_at and told_at >= known_until - MARGIN_MS for wiped_at, known_until in self._wipes)

    def __len__(self) -> int:
        """How often the store may have come back with less than it had."""
        return len(self._wipes)
