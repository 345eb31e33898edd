"""The event cursor: a listener's positions in the streams of all partitions, as one text.

Clients store and send it back. With one partition, the text is the position in its stream.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tideq.queue_core.outbox.stream import BEGINNING, POSITION, Position, parse_position

CURSOR_FORM = rf"{POSITION.pattern}(,{POSITION.pattern})*"


class EventCursor(NamedTuple):
    positions: tuple[Position, ...]

    @property
    def is_beginning(self) -> bool:
        return all(position == BEGINNING for position in self.positions)

    def moved(self, partition: int, position: Position) -> "EventCursor":
        return EventCursor((*self.positions[:partition], position, *self.positions[partition + 1 :]))

    def later(self, other: "EventCursor") -> "EventCursor":
        return EventCursor(tuple(map(max, self.positions, other.positions)))

    def __str__(self) -> str:
        return ",".join(map(str, self.positions))


def beginning(count: int) -> EventCursor:
    return EventCursor((BEGINNING,) * count)


def parse_event_cursor(written: str, count: int) -> EventCursor | None:
    """Parse a cursor for `count` partitions; None if invalid.

    Partitions missing in the text start at the beginning; positions beyond `count`, written by processes that already
    use more partitions, are dropped.
    """
    positions = [parse_position(part) for part in written.split(",")]
    found = [position for position in positions if position is not None]
    if len(found) < len(positions):
        return None
    return EventCursor((*found, *beginning(count - len(found)).positions)[:count])


def joined(positions: Sequence[Position]) -> EventCursor:
    return EventCursor(tuple(positions))
