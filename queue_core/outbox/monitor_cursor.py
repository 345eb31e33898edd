"""The outbox as the monitors read it to tell what happened: every transition at most once, however many read.

The journal's place is kept in the store and moves from where it was or not at all, so a stretch of the stream is one
reader's. Who dies between moving on and telling has told less, never twice. What was trimmed unread is gone.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from tideq.queue_core.outbox.consumer import FIRST_ID, OutboxEntry, last_entry_id
from tideq.queue_core.polls.lane_names import LaneNames
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import accepted, number, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.connect import store_errors
from tideq.queue_core.task import ANONYMOUS, TraceContext

READ_COUNT = 200

log = structlog.get_logger(__name__)


class StreamSlice(NamedTuple):
    entries: list[OutboxEntry]
    has_gap: bool
    """Entries between the place and these were trimmed before anyone read them."""


class Hidden(NamedTuple):
    """A row of `follow.lua`: until when a task is hidden, or empty to ask for it."""

    task_id: bytes
    until_ms: bytes


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a task comes from: the trace it came with, and who submitted it."""

    trace: TraceContext | None = None
    client_id: str = ""


UNKNOWN = Origin()
"""Of a task that the store no longer has."""
untraced = functools.lru_cache(maxsize=1_000)(functools.partial(Origin, None))
"""What most tasks of a client share."""


class Defined(msgspec.Struct, array_like=True, gc=False):
    """As much of a definition as says where the task comes from."""

    task_type: msgspec.Raw
    parameters: msgspec.Raw
    required_capabilities: msgspec.Raw = msgspec.Raw()
    tags: msgspec.Raw = msgspec.Raw()
    trace: TraceContext | None = None
    client_id: str = ANONYMOUS

    @property
    def origin(self) -> Origin:
        return Origin(self.trace, self.client_id) if self.trace else untraced(self.client_id)


decode_defined = msgspec.msgpack.Decoder(Defined).decode


class MonitorCursor:
    def __init__(self, client: Any, scripts: Scripts, keys: Keys) -> None:
        self._client = client
        self._scripts = scripts
        self._journal = keys.key("journal")
        self._stream = keys.key("outbox")
        self._definitions = keys.key("definitions")
        self._lanes = LaneNames(client, keys)

    async def position(self) -> str:
        """The last entry that was told; empty where nobody has begun."""
        with store_errors():
            return text(await self._client.hget(self._journal, "position") or b"")

    async def newest(self) -> str:
        return await last_entry_id(self._client, self._stream)

    async def read(self, position: str) -> StreamSlice:
        """From the place on. Its own entry comes first as long as it is kept: so a gap is noticed without asking."""
        with store_errors():
            found = await self._client.xrange(self._stream, position, count=READ_COUNT + 1)
        entries = [OutboxEntry(text(entry_id), fields) for entry_id, fields in found]
        if entries and entries[0].entry_id == position:
            return StreamSlice(entries[1:], has_gap=False)
        return StreamSlice(entries, has_gap=bool(entries) and position != FIRST_ID)

    async def move(self, expected: str, position: str, hidden: Sequence[Hidden] = ()) -> list[int | None] | None:
        """What was asked about hidden tasks, row by row; None where another reader has moved on from there."""
        rows = [value for row in hidden for value in row]
        reply = await self._scripts.call("follow", rows, expected=expected, position=position)
        is_ours, _, *told = accepted(reply)
        return [int(until) if until else None for until in told] if number(is_ours) else None

    async def task_types(self) -> LaneNames:
        """By lane, as of now."""
        with store_errors():
            await self._lanes.refresh()
        return self._lanes

    async def origins(self, task_ids: Sequence[bytes]) -> list[Origin]:
        """Of a task that the store no longer has, or whose definition cannot be read, nothing is known."""
        if not task_ids:
            return []
        with store_errors():
            found = await self._client.hmget(self._definitions, task_ids)
        return [_origin(*each) for each in zip(task_ids, found, strict=True)]


def _origin(task_id: bytes, definition: bytes | None) -> Origin:
    try:
        return decode_defined(definition).origin if definition else UNKNOWN
    except msgspec.DecodeError as error:
        log.error("origin not read", task_id=task_id.decode(errors="replace"), problem=str(error))
        return UNKNOWN
