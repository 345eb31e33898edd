"""Which task type a lane stands for: read anew only when a lane was opened.

A lane that was empty for an hour may be given to another type. So what a lane stood for is a question of when: types
that it no longer stands for are kept with the instant at which they ended.
"""

from collections.abc import Sequence
from typing import Any

from tideq.queue_core.lanes import task_type_of
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.driver_errors import store_errors


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
        self._task_types = {text(lane): task_type_of(text(signature)) for lane, signature in names.items()}
        self._earlier = _earlier([text(each) for each in retired])
        self._version = version

    def task_type(self, lane: str, at_ms: int) -> str:
        """What the lane stood for at this instant."""
        for until_ms, task_type in self._earlier.get(lane, ()):
            if at_ms < until_ms:
                return task_type
        return self._task_types.get(lane, "")


def _earlier(retired: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """From `<lane> <instant> <signature>`, the earliest first."""
    earlier: dict[str, list[tuple[int, str]]] = {}
    for each in retired:
        lane, until_ms, signature = each.split(" ", 2)
        earlier.setdefault(lane, []).append((int(until_ms), task_type_of(signature)))
    return earlier
