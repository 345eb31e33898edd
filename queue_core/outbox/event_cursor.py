"""Where a listener is in the streams of all partitions, in one text that it can send back.

With one partition this is its position in the one stream, written as ever.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tideq.queue_core.outbox.stream import BEGINNING, POSITION, Position, parse_position

PLACES = rf"{POSITION.pattern}(,{POSITION.pattern})*"


class Places(NamedTuple):
    positions: tuple[Position, ...]

    @property
    def is_beginning(self) -> bool:
        return all(position == BEGINNING for position in self.positions)

    def moved(self, partition: int, position: Position) -> "Places":
        return Places((*self.positions[:partition], position, *self.positions[partition + 1 :]))

    def later(self, other: "Places") -> "Places":
        return Places(tuple(map(max, self.positions, other.positions)))

    def __str__(self) -> str:
        return ",".join(map(str, self.positions))


def beginning(count: int) -> Places:
    return Places((BEGINNING,) * count)


def parse_places(written: str, count: int) -> Places | None:
    """Of partitions that came since nothing was read yet; those only other processes know of are left to them."""
    positions = [parse_position(part) for part in written.split(",")]
    found = [position for position in positions if position is not None]
    if len(found) < len(positions):
        return None
    return Places((*found, *beginning(count - len(found)).positions)[:count])


def joined(positions: Sequence[Position]) -> Places:
    return Places(tuple(positions))
