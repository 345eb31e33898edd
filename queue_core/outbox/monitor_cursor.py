"""The monitors' shared cursor in the outbox: each transition is published at most once, by one of the monitors.

The position lies in the store and moves by compare-and-set, so that each slice of the stream belongs to one monitor. A
monitor that dies after moving the cursor and before publishing loses its slice. Entries trimmed unread are lost too.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from tideq.queue_core.outbox.reader import OutboxReader
from tideq.queue_core.polls.lane_names import LaneNames
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import accepted, number, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.task import ANONYMOUS, TraceContext

log = structlog.get_logger(__name__)


class Hidden(NamedTuple):
    """A row of `advance_monitor.lua`: until when a task is hidden; empty to read it."""

    task_id: bytes
    until_ms: bytes


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The trace and the client of a task's submission."""

    trace: TraceContext | None = None
    client_id: str = ""


UNKNOWN = Origin()
"""Origin of a task that the store no longer has."""
untraced = functools.lru_cache(maxsize=1_000)(functools.partial(Origin, None))
"""Shared by all tasks of a client without a trace."""


class OriginFields(msgspec.Struct, array_like=True, gc=False):
    """The fields of a `Definition` up to `client_id`, decoded only as far as `Origin` needs them."""

    task_type: msgspec.Raw
    parameters: msgspec.Raw
    required_capabilities: msgspec.Raw = msgspec.Raw()
    tags: msgspec.Raw = msgspec.Raw()
    trace: TraceContext | None = None
    client_id: str = ANONYMOUS

    @property
    def origin(self) -> Origin:
        return Origin(self.trace, self.client_id) if self.trace else untraced(self.client_id)


decode_origin = msgspec.msgpack.Decoder(OriginFields).decode


class MonitorCursor(OutboxReader):
    def __init__(self, client: Any, scripts: Scripts, keys: Keys) -> None:
        super().__init__(client, keys)
        self._scripts = scripts
        self._journal = keys.key("monitor_cursor")
        self._definitions = keys.key("definitions")
        self._lanes = LaneNames(client, keys)

    async def position(self) -> str:
        """Returns the last published entry; empty if no monitor has started yet."""
        with store_errors():
            return text(await self._client.hget(self._journal, "position") or b"")

    async def move(self, expected: str, position: str, hidden: Sequence[Hidden] = ()) -> list[int | None] | None:
        """Move the cursor; returns the answers to `hidden` row by row, or None if another monitor has moved it."""
        rows = [value for row in hidden for value in row]
        reply = await self._scripts.call("advance_monitor", rows, expected=expected, position=position)
        has_moved, _, *until_ms = accepted(reply)
        return [int(until) if until else None for until in until_ms] if number(has_moved) else None

    async def task_types(self) -> LaneNames:
        """Returns the task types by lane, refreshed."""
        with store_errors():
            await self._lanes.refresh()
        return self._lanes

    async def origins(self, task_ids: Sequence[bytes]) -> list[Origin]:
        """Returns the origins; `UNKNOWN` for a task that the store no longer has or cannot decode."""
        if not task_ids:
            return []
        with store_errors():
            found = await self._client.hmget(self._definitions, task_ids)
        return [_origin(*each) for each in zip(task_ids, found, strict=True)]


def _origin(task_id: bytes, definition: bytes | None) -> Origin:
    try:
        return decode_origin(definition).origin if definition else UNKNOWN
    except msgspec.DecodeError as error:
        log.error("task origin unreadable", task_id=task_id.decode(errors="replace"), problem=str(error))
        return UNKNOWN
