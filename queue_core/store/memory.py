"""Watches the store's memory, so that submissions are refused before the store refuses every write."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from tideq.queue_core.scripts.replies import accepted
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.server_identity import infos_of


class Memory(NamedTuple):
    """Memory of the server, or of the cluster node nearest its limit."""

    used_bytes: int
    limit_bytes: int
    """0 is no limit."""

    @property
    def ratio(self) -> float:
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


async def read_memory(client: Any) -> Memory:
    with store_errors():
        infos = await infos_of(client, "memory")
    nodes = [Memory(node["used_memory"], node["maxmemory"]) for node in infos]
    return max(nodes, key=lambda memory: (memory.ratio, memory.used_bytes))


class MemoryWatch:
    """Sets the memory flag of all partitions by the fullest node, since a task may go to any partition."""

    def __init__(self, client: Any, scripts: Sequence[Scripts], max_ratio: float) -> None:
        self._client = client
        self._scripts = scripts
        self._max_ratio = max_ratio

    async def observe(self) -> float:
        """Update the flag; returns the used share of the memory limit, 0 without a limit."""
        ratio = (await read_memory(self._client)).ratio
        is_high = int(ratio >= self._max_ratio)
        results = await asyncio.gather(
            *(self._set_flag(each, is_high) for each in self._scripts), return_exceptions=True
        )
        for failure in filter(None, results):
            raise failure
        return ratio

    async def _set_flag(self, scripts: Scripts, is_high: int) -> None:
        accepted(await scripts.call("set_memory_flag", is_high=is_high))
