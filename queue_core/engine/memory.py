"""Watching the store's memory, so that submissions are refused before the store must refuse everything."""

from typing import Any

from tideq.queue_core.engine.replies import accepted
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.engine.store import store_errors


class MemoryWatch:
    def __init__(self, client: Any, scripts: Scripts, max_ratio: float) -> None:
        self._client = client
        self._scripts = scripts
        self._max_ratio = max_ratio

    async def observe(self) -> float:
        """Note whether memory runs short; returns the used share of the limit, 0 where the store has none."""
        with store_errors():
            info = await self._client.info("memory")
        ratio = max(_ratio(node) for node in _nodes(info))
        accepted(await self._scripts.call("pressure", is_high=int(ratio >= self._max_ratio)))
        return ratio


def _nodes(info: dict[str, Any]) -> list[dict[str, Any]]:
    """A cluster answers once for each node."""
    return [info] if "used_memory" in info else list(info.values())


def _ratio(info: dict[str, Any]) -> float:
    return info["used_memory"] / info["maxmemory"] if info["maxmemory"] else 0.0
