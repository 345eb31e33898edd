"""Making sure that what was written is safe: on a replica, or on the store's own disk.

Replication and the append-only file keep the order of writes, and WAIT and WAITAOF speak about the writes of their own
connection. So a small write is added after the one in question, on one connection with the wait: what covers it covers
everything before it. And the server is asked whether it has the task at all: another one may have taken over since.
"""

from typing import Any

from redis.exceptions import RedisError, ResponseError

from tideq.queue_core.durability import Durability
from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.store import store_errors
from tideq.queue_core.errors import DurabilityUnavailable

REPLICAS = 1


class Assurance:
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

    async def reach(self, level: Durability, task_id: str, timeout_ms: int) -> bool:
        """Whether this task, and everything written before it, became that safe in time."""
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hexists(self._records, task_id)
        pipeline.hincrby(self._meta, "assurances", 1)
        if level is Durability.REPLICA:
            pipeline.execute_command("WAIT", REPLICAS, timeout_ms)
        else:
            pipeline.execute_command("WAITAOF", 1, 0, timeout_ms)
        with store_errors():
            has_task, _, reached = await pipeline.execute()
        return bool(has_task) and (reached if level is Durability.REPLICA else reached[0]) >= 1

    async def _has_replica(self) -> bool:
        with store_errors():
            info = await self._client.info("replication")
        return int(info.get("connected_slaves", 0)) >= REPLICAS

    async def _can_wait_for_disk(self) -> bool:
        """Asked for zero copies WAITAOF answers at once, or says that it cannot be asked."""
        with store_errors():
            info = await self._client.info("persistence")
        if not int(info.get("aof_enabled", 0)):
            return False
        try:
            await self._client.execute_command("WAITAOF", 0, 0, 1)
        except ResponseError:
            return False
        except RedisError as error:
            raise DurabilityUnavailable(Durability.DISK, str(error)) from error
        return True
