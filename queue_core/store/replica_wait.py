"""Waits until written tasks are on a replica, or on the store's own disk.

WAIT and WAITAOF cover the writes of their own connection only, and replication and the append-only file keep the order
of writes. So a small write precedes the wait on the same connection: a copy that has it has all earlier writes. The
same pipeline checks that the server has the tasks: another server may have taken over since the submission.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from tideq.queue_core.durability import Durability
from tideq.queue_core.errors import DurabilityUnavailable, StoreRefused, StoreUnavailable
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.connect import node_client, target_of
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.server_identity import infos_of

REPLICAS = 1


class ReplicaWait:
    """Each partition may lie on a server of its own."""

    def __init__(self, client: Any, keys: Sequence[Keys], routing: Routing) -> None:
        self._servers = [ServerWait(client, each) for each in keys]
        self._routing = routing

    async def check(self, level: Durability) -> None:
        """Raises DurabilityUnavailable if the store cannot provide the level; to be called before the write.

        Checks all partitions, because the task's partition is not chosen yet.
        """
        for server in self._servers:
            await server.check(level)

    async def wait_for_copies(self, level: Durability, timeout_ms: int, task_ids: Sequence[str]) -> bool:
        """Whether tasks of one write reached the level in time: waits in every partition in which one may lie.

        With one partition the first task stands for all: they were written at once.
        """
        if len(self._servers) == 1:
            return bool(await self._servers[0].safe_tasks(level, timeout_ms, task_ids[:1]))
        ids_by_partition: dict[int, list[str]] = {}
        for task_id in task_ids:
            for partition in (self._routing.of_id(task_id), *self._routing.elsewhere(task_id)):
                ids_by_partition.setdefault(partition, []).append(task_id)
        waits = (self._servers[each].safe_tasks(level, timeout_ms, ids) for each, ids in ids_by_partition.items())
        return set(task_ids) <= set[str]().union(*await asyncio.gather(*waits))


class ServerWait:
    """The wait on the server of one partition."""

    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._meta = keys.key("meta")
        self._records = keys.key("records")

    async def check(self, level: Durability) -> None:
        if level is Durability.REPLICA and not await self._has_replica():
            raise DurabilityUnavailable(level, "the store has no replica")
        if level is Durability.DISK and not await self._can_wait_for_disk():
            raise DurabilityUnavailable(level, "the store keeps no append-only file, or has no WAITAOF")

    async def safe_tasks(self, level: Durability, timeout_ms: int, task_ids: Sequence[str]) -> set[str]:
        """Returns the tasks that this server has, if all its writes so far reached the level in time; else none."""
        with store_errors():
            server = await self._server()
            try:
                *found, _, reached = await self._wait(server, level, timeout_ms, task_ids).execute()
            finally:
                if server is not self._client:
                    await server.aclose()
        is_safe = (reached if level is Durability.REPLICA else reached[0]) >= 1
        return {task_id for task_id, is_present in zip(task_ids, found, strict=True) if is_present and is_safe}

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
        """Returns a client whose connections all lead to the server that has the partition."""
        target = await target_of(self._client, self._meta)
        return node_client(target["target_nodes"]) if target else self._client

    async def _info(self, section: str) -> dict[str, Any]:
        with store_errors():
            (info,) = await infos_of(self._client, section, **await target_of(self._client, self._meta))
        return info

    async def _has_replica(self) -> bool:
        return int((await self._info("replication")).get("connected_slaves", 0)) >= REPLICAS

    async def _can_wait_for_disk(self) -> bool:
        """Tests WAITAOF with zero copies, which replies at once or is refused."""
        if not int((await self._info("persistence")).get("aof_enabled", 0)):
            return False
        try:
            with store_errors():
                target = await target_of(self._client, self._meta)
                await self._client.execute_command("WAITAOF", 0, 0, 1, **target)
        except StoreRefused:
            return False
        except StoreUnavailable as error:
            raise DurabilityUnavailable(Durability.DISK, str(error)) from error
        return True
