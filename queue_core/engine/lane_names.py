"""Which task type a lane stands for: read anew only when a lane was opened.

A lane that was empty for an hour may be given to another type. So what a lane stood for is a question of when: types
that it no longer stands for are kept with the instant at which they ended.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.replies import known_text
from tideq.queue_core.engine.store_errors import store_errors
from tideq.queue_core.lanes import task_type_of

RETIRED = re.compile(r"(\d{1,9}) (\d{1,15}) (\S.*)", re.ASCII)
"""Lane, instant and signature."""

log = structlog.get_logger(__name__)


class LaneNames:
    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._meta, self._names, self._retired = (keys.key(name) for name in ("meta", "lane_names", "retired_lanes"))
        self._version: bytes | None = None
        self._task_types: dict[str, str] = {}
        self._earlier: dict[str, list[tuple[int, str]]] = {}
        """Of lanes that stood for others: until when, and for which type, in order."""

    async def refresh(self) -> None:
        with store_errors():
            version = await self._client.hget(self._meta, "lanes_version")
            if version == self._version:
                return
            names = await self._client.hgetall(self._names)
            retired = await self._client.zrange(self._retired, 0, -1)
        self._task_types = {lane: task_type_of(signature) for lane, signature in signatures(names).items()}
        self._earlier = _earlier(retired)
        self._version = version

    def task_type(self, lane: str, at_ms: int) -> str:
        """What the lane stood for at this instant."""
        for until_ms, task_type in self._earlier.get(lane, ()):
            if at_ms < until_ms:
                return task_type
        return self._task_types.get(lane, "")


def signatures(names: Mapping[bytes, bytes]) -> dict[str, str]:
    """By lane, without what is no text: one odd name is no reason to know none."""
    known = {known_text(lane, "lane_names"): known_text(name, "lane_names") for lane, name in names.items()}
    return {lane: name for lane, name in known.items() if lane is not None and name is not None}


def _earlier(retired: Sequence[bytes]) -> dict[str, list[tuple[int, str]]]:
    """From `<lane> <instant> <signature>`, the earliest first."""
    earlier: dict[str, list[tuple[int, str]]] = {}
    for each in retired:
        if found := RETIRED.fullmatch(known_text(each, "retired_lanes") or ""):
            lane, until_ms, signature = found.groups()
            earlier.setdefault(lane, []).append((int(until_ms), task_type_of(signature)))
        else:
            log.error("a retired lane cannot be read, and is left out", entry=str(each)[:100])
    return earlier
