"""The outbox as events for listeners: one for each transition, with its position in the stream.

Missed events can be read again as long as the stream has them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from tideq.queue_core.outbox.reader import OutboxEntry, OutboxReader
from tideq.queue_core.polls.lane_names import LaneNames
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.record import Record, parse_record
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.driver_errors import store_errors

PAGE_ENTRIES = 20
WHOLE_ENTRY = 1_000_000
"""An event number greater than that of any event in an entry."""

POSITION = re.compile(r"(\d{1,15})-(\d{1,15})-(\d{1,7})", re.ASCII)
CURSOR_FORM = rf"{POSITION.pattern}(,{POSITION.pattern})*"


class Position(NamedTuple):
    """A place in the stream: an entry id, and the number of an event in the entry, which may hold many.

    Clients store and send it back: when its form changes, accept the old form for one release.
    """

    milliseconds: int
    sequence: int
    number: int

    @property
    def entry_id(self) -> str:
        return f"{self.milliseconds}-{self.sequence}"

    def __str__(self) -> str:
        return f"{self.entry_id}-{self.number}"


BEGINNING = Position(0, 0, 0)


def parse_position(written: str) -> Position | None:
    match = POSITION.fullmatch(written)
    return Position(*map(int, match.groups())) if match else None


def end_of(entry_id: str) -> Position:
    """Returns the position after all events of an entry."""
    milliseconds, _, sequence = entry_id.partition("-")
    return Position(int(milliseconds), int(sequence), WHOLE_ENTRY)


class EventCursor(NamedTuple):
    """A listener's positions in the streams of all partitions; as text, the position in the only stream of one.

    Clients store and send it back.
    """

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


class Event(msgspec.Struct, frozen=True):
    position: Position
    now_ms: int
    epoch: str
    task_id: str
    task_type: str
    record: Record
    partition: int = 0


class EventPage(NamedTuple):
    events: list[Event]
    end: Position
    """Start of the next page; equal to the start of this page if it is empty."""


class OutboxStream(OutboxReader):
    """The stream of one partition, readable from any position."""

    def __init__(self, client: Any, keys: Keys, partition: int = 0) -> None:
        super().__init__(client, keys)
        self.partition = partition
        self._lanes = LaneNames(client, keys)

    async def newest(self) -> Position:
        last_id = await self.last_id()
        return BEGINNING if last_id == BEGINNING.entry_id else end_of(last_id)

    async def page_after(self, position: Position) -> EventPage | None:
        """Returns the next events; None if there is a gap before them."""
        page = await self.page(position.entry_id, PAGE_ENTRIES)
        if page.gap:
            return None
        entries = [page.previous, *page.entries] if page.previous else page.entries
        events = [event for event in await self.parse(entries) if event.position > position]
        return EventPage(events, end_of(entries[-1].entry_id) if entries else position)

    async def parse(self, entries: Sequence[OutboxEntry]) -> list[Event]:
        with store_errors():
            await self._lanes.refresh()
        return [event for entry in entries for event in self._events_in(entry)]

    def _events_in(self, entry: OutboxEntry) -> Iterator[Event]:
        """Yields the events of an entry in order, without those that cannot be read."""
        fields, place = entry.fields, end_of(entry.entry_id)
        for number, name in enumerate(entry.event_names, 1):
            try:
                now_ms, epoch = int(fields[b"now_ms"]), text(fields[b"epoch"])
                record, task_id = parse_record(fields[name]), text(name)
                counted = record.number("version"), record.number("attempt"), record.instant("ended_ms")
            except (KeyError, ValueError) as error:
                self.skip(entry.entry_id, name, error)
                continue
            task_type = self._lanes.task_type(record.text("lane"), counted[-1] or now_ms)
            yield Event(place._replace(number=number), now_ms, epoch, task_id, task_type, record, self.partition)
