"""Watching the store's memory, so that submissions are refused before the store must refuse everything."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from tideq.queue_core.scripts.replies import accepted
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.connect import store_errors


class Memory(NamedTuple):
    """Of the node that is nearest its limit."""

    used_bytes: int
    limit_bytes: int
    """Zero is none."""

    @property
    def ratio(self) -> float:
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


async def read_memory(client: Any) -> Memory:
    with store_errors():
        info = await client.info("memory")
    nodes = [Memory(node["used_memory"], node["maxmemory"]) for node in _nodes(info)]
    return max(nodes, key=lambda memory: (memory.ratio, memory.used_bytes))


class MemoryWatch:
    """Of all partitions: which of a cluster's nodes runs short is told to each, since tasks go to any."""

    def __init__(self, client: Any, scripts: Sequence[Scripts], max_ratio: float) -> None:
        self._client = client
        self._scripts = scripts
        self._max_ratio = max_ratio

    async def observe(self) -> float:
        """Note whether memory runs short; returns the used share of the limit, 0 where the store has none."""
        ratio = (await read_memory(self._client)).ratio
        is_high = int(ratio >= self._max_ratio)
        told = await asyncio.gather(*(self._tell(each, is_high) for each in self._scripts), return_exceptions=True)
        for failure in filter(None, told):
            raise failure
        return ratio

    async def _tell(self, scripts: Scripts, is_high: int) -> None:
        accepted(await scripts.call("pressure", is_high=is_high))


def _nodes(info: dict[str, Any]) -> list[dict[str, Any]]:
    """A cluster answers once for each node."""
    return [info] if "used_memory" in info else list(info.values())
