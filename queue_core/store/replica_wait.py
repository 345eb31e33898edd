"""Making sure that what was written is safe: on a replica, or on the store's own disk.

Replication and the append-only file keep the order of writes, and WAIT and WAITAOF speak about the writes of their own
connection. So a small write is added after the one in question, on one connection with the wait: what covers it covers
everything before it. And the server is asked whether it has the task at all: another one may have taken over since.
"""

from collections.abc import Sequence
from typing import Any

from tideq.queue_core.durability import Durability
from tideq.queue_core.errors import DurabilityUnavailable, StoreRefused, StoreUnavailable
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.connect import node_client, node_of, store_errors

REPLICAS = 1


class ReplicaWait:
    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._meta = keys.key("meta")
        self._records = keys.key("records")

    async def check(self, level: Durability) -> None:
        """Refuses, before anything is written, what this store cannot give."""
        if level is Durability.REPLICA and not await self._has_replica():
            raise DurabilityUnavailable(level, "the store has no replica")
        if level is Durability.DISK and not await self._can_wait_for_disk():
            raise DurabilityUnavailable(level, "the store keeps no append-only file, or has no WAITAOF")

    async def wait_for_copies(self, level: Durability, timeout_ms: int, task_ids: Sequence[str]) -> bool:
        """Whether these tasks became that safe in time; they were written together, and the first stands for all."""
        return bool(await self.safe_ones(level, timeout_ms, task_ids[:1]))

    async def safe_ones(self, level: Durability, timeout_ms: int, task_ids: Sequence[str]) -> set[str]:
        """Those of the tasks that are here, if everything written here so far became that safe in time."""
        with store_errors():
            server = await self._server()
            try:
                *known, _, reached = await self._wait(server, level, timeout_ms, task_ids).execute()
            finally:
                if server is not self._client:
                    await server.aclose()
        is_safe = (reached if level is Durability.REPLICA else reached[0]) >= 1
        return {task_id for task_id, is_known in zip(task_ids, known, strict=True) if is_known and is_safe}

    def _wait(self, server: Any, level: Durability, timeout_ms: int, task_ids: Sequence[str]) -> Any:
        pipeline = server.pipeline(transaction=False)
        for task_id in task_ids:
            pipeline.hexists(self._records, task_id)
        pipeline.hincrby(self._meta, "assurances", 1)
        if level is Durability.REPLICA:
            pipeline.execute_command("WAIT", REPLICAS, timeout_ms)
        else:
            pipeline.execute_command("WAITAOF", 1, 0, timeout_ms)
        return pipeline

    async def _server(self) -> Any:
        """A client whose connections all lead to the one server that has the partition."""
        node = await node_of(self._client, self._meta)
        return self._client if node is None else node_client(node)

    async def _info(self, section: str) -> dict[str, Any]:
        info = await self._client.info(section, **_target(await node_of(self._client, self._meta)))
        return next(iter(info.values())) if all(isinstance(each, dict) for each in info.values()) else info

    async def _has_replica(self) -> bool:
        with store_errors():
            info = await self._info("replication")
        return int(info.get("connected_slaves", 0)) >= REPLICAS

    async def _can_wait_for_disk(self) -> bool:
        """Asked for zero copies WAITAOF answers at once, or says that it cannot be asked."""
        with store_errors():
            info = await self._info("persistence")
            node = await node_of(self._client, self._meta)
        if not int(info.get("aof_enabled", 0)):
            return False
        try:
            with store_errors():
                await self._client.execute_command("WAITAOF", 0, 0, 1, **_target(node))
        except StoreRefused:
            return False
        except StoreUnavailable as error:
            raise DurabilityUnavailable(Durability.DISK, str(error)) from error
        return True


def _target(node: Any) -> dict[str, Any]:
    return {} if node is None else {"target_nodes": node}
