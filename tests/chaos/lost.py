"""What a store may lose that is wiped, or replaced by a replica: what history had not heard of, and never what was told
to be in history.

A store that is killed may lose nothing.
"""

from itertools import accumulate

from tests.chaos.evidence import Evidence, StoreTime
from tests.chaos.notes import Note

MARGIN_MS = 50


class Losses:
    """History is a beginning of what happened in each epoch. What was told before the last instant it has of the epochs
    up to a wipe must be in it."""

    def __init__(self, evidence: Evidence, time: StoreTime) -> None:
        ends: dict[int, int] = {}
        for event in evidence.all_events():
            ends[event.epoch] = max(ends.get(event.epoch, 0), event.at)
        self._time = time
        wipes = evidence.of("wiped", "failed_over")
        epochs = accumulate((note["epoch"] for note in wipes), max)
        self._wipes = [
            (note["t1"], max((at for each, at in ends.items() if each <= epoch), default=0))
            for note, epoch in zip(wipes, epochs, strict=True)
        ]

    def may_lose(self, note: Note) -> bool:
        """Whether what this note tells of may be undone since."""
        began, told_at = note.get("t0", note["t1"]), self._time.latest(note["t1"])
        return any(began <= wiped_at and told_at >= known_until - MARGIN_MS for wiped_at, known_until in self._wipes)

    def __len__(self) -> int:
        """How often the store may have come back with less than it had."""
        return len(self._wipes)
