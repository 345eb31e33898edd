"""Which task type a lane stands for: read anew only when a lane was opened.

A lane that was empty for an hour may be given to another type. What is older than that may be told under its new name.
"""

from typing import Any

from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.replies import text
from tideq.queue_core.engine.store_errors import store_errors
from tideq.queue_core.lanes import task_type_of


class LaneNames:
    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._meta, self._names = keys.key("meta"), keys.key("lane_names")
        self._version: bytes | None = None
        self._task_types: dict[str, str] = {}

    async def refresh(self) -> None:
        with store_errors():
            version = await self._client.hget(self._meta, "lanes_version")
            if version == self._version:
                return
            names = await self._client.hgetall(self._names)
        self._task_types = {text(lane): task_type_of(text(signature)) for lane, signature in names.items()}
        self._version = version

    def task_type(self, lane: str) -> str:
        return self._task_types.get(lane, "")
