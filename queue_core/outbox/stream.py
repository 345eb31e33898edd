"""Reads the outbox as events: one for each transition, with its position in the stream.

For listeners: missed events can be read again as long as the stream has them. Replication to history reads the stream
by itself (`consumer.py`) and acknowledges it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import structlog

from tideq.queue_core.polls.lane_names import LaneNames
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.record import Record, parse_record
from tideq.queue_core.scripts.replies import lossy_text, text
from tideq.queue_core.store.driver_errors import store_errors

PAGE_ENTRIES = 20
ID_LENGTH = 36
"""Length of a task id. Fields of an entry with names of other lengths are not events; later versions may add some."""
WHOLE_ENTRY = 1_000_000
"""An event number greater than that of any event in an entry."""

log = structlog.get_logger(__name__)
POSITION = re.compile(r"(\d{1,15})-(\d{1,15})-(\d{1,7})", re.ASCII)


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


class Event(msgspec.Struct, frozen=True):
    position: Position
    now_ms: int
    epoch: str
    task_id: str
    task_type: str
    record: Record
    partition: int = 0


def parse_entry(
    entry_id: str,
    fields: Mapping[bytes, bytes],
    lanes: LaneNames,
    partition: int = 0,
    on_skipped: Callable[[], None] = lambda: None,
) -> Iterator[Event]:
    """Yields the events of one stream entry in order; an unreadable event is skipped and logged."""
    try:
        now_ms, epoch, place = int(fields[b"now_ms"]), text(fields[b"epoch"]), end_of(entry_id)
    except (KeyError, ValueError) as error:
        log.error("outbox entry skipped", entry_id=entry_id, problem=repr(error))
        on_skipped()
        return
    names = (name for name in fields if len(name) == ID_LENGTH)
    for number, name in enumerate(names, 1):
        try:
            record, task_id = parse_record(fields[name]), text(name)
            counted = record.number("version"), record.number("attempt"), record.instant("ended_ms")
        except ValueError as error:
            log.error("event skipped", entry_id=entry_id, task_id=lossy_text(name), problem=str(error))
            on_skipped()
            continue
        task_type = lanes.task_type(record.text("lane"), counted[-1] or now_ms)
        yield Event(place._replace(number=number), now_ms, epoch, task_id, task_type, record, partition)


class EventPage(NamedTuple):
    events: list[Event]
    end: Position
    """Start of the next page; equal to the start of this page if it is empty."""


Entries = list[tuple[str, Mapping[bytes, bytes]]]


class OutboxStream:
    """The stream of one partition, readable from any position."""

    def __init__(self, client: Any, keys: Keys, partition: int = 0) -> None:
        self.partition = partition
        self.skipped_count = 0
        """Unreadable events, which no listener received."""
        self._client = client
        self._stream = keys.key("outbox")
        self._lanes = LaneNames(client, keys)

    async def newest(self) -> Position:
        with store_errors():
            entries = await self._client.xrevrange(self._stream, count=1)
        return end_of(text(entries[0][0])) if entries else BEGINNING

    async def holds(self, position: Position) -> bool:
        """Whether the stream still has all entries after this position; only its oldest entries are ever trimmed."""
        with store_errors():
            return bool(await self._client.xrange(self._stream, position.entry_id, position.entry_id))

    async def page_after(self, position: Position) -> EventPage | None:
        """Returns the next events; None if the entry at this position has been trimmed."""
        with store_errors():
            entries = _texts(await self._client.xrange(self._stream, position.entry_id, count=PAGE_ENTRIES))
        if not entries or entries[0][0] != position.entry_id:
            return None
        events = [event for event in await self.parse(entries) if event.position > position]
        return EventPage(events, end_of(entries[-1][0]))

    async def first_page(self) -> EventPage | None:
        """Returns the first events ever written; None if they have been trimmed."""
        with store_errors():
            entries = _texts(await self._client.xrange(self._stream, count=PAGE_ENTRIES))
        if not entries:
            return EventPage([], BEGINNING)
        with store_errors():
            stream = await self._client.xinfo_stream(self._stream)
        if stream["entries-added"] != stream["length"]:
            return None
        return EventPage(await self.parse(entries), end_of(entries[-1][0]))

    async def read_after(self, position: Position, count: int, block_ms: int) -> Entries:
        """Returns the next entries unparsed; waits up to `block_ms` for the first."""
        with store_errors():
            answer = await self._client.xread({self._stream: position.entry_id}, count=count, block=block_ms)
        return [entry for _, entries in answer or () for entry in _texts(entries)]

    async def parse(self, entries: Entries) -> list[Event]:
        with store_errors():
            await self._lanes.refresh()
        return [
            event
            for entry_id, fields in entries
            for event in parse_entry(entry_id, fields, self._lanes, self.partition, self._note_skipped)
        ]

    def _note_skipped(self) -> None:
        self.skipped_count += 1


def _texts(entries: list[tuple[bytes, Mapping[bytes, bytes]]]) -> Entries:
    return [(text(entry_id), fields) for entry_id, fields in entries]
