"""What many tests of history begin with: a replicator at work, history caught up, and a look into its tables."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, LiteralString

from tests.history.scale import PATIENCE_SECONDS
from tests.kit import Kit
from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, replicators_of
from tideq.persistence.replication.replicator import Replicator, Replicators
from tideq.queue_core.background import background_task
from tideq.queue_core.duties import Duties
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import last_entry_id
from tideq.queue_core.store.connect import connect_listener
from tideq.queue_core.store.side_data import NAMES


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    """What does not come about in this time never will."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def replicating(kept: OpenStore, redis_url: str, kit: Kit) -> AsyncGenerator[Replicators]:
    async with (
        replicators_of(kept, redis_url) as replicator,
        background_task(replicator.run_for_ever()),
    ):
        yield replicator


async def replicate_all(kept: OpenStore, redis_url: str, kit: Kit, database: Database) -> None:
    """A replicator that works until history has everything and the store has been told, and then ends.

    What the store holds besides tasks has been copied too.
    """
    told: list[str] = []
    newest = await last_entry_id(kit.client, kit.keys.key("outbox"))
    assert newest != (await checkpoint(kit, database)).entry_id, "there is nothing to replicate"

    ((began_at,),) = await rows(database, "SELECT clock_timestamp()")

    async def is_told() -> bool:
        copied = "SELECT FROM side_data WHERE partition = %s AND copied_at >= %s"
        return newest in told and len(await rows(database, copied, kit.settings.partition, began_at)) == len(NAMES)

    async with contextlib.aclosing(connect_listener(redis_url)) as listener:
        feed = OutboxConsumer(kept.client, kit.keys, listener)
        replicator = Replicator(
            database, kept.engine, feed, on_batch=lambda batch: told.append(batch.entries[-1].entry_id)
        )
        async with background_task(replicator.run_for_ever(Duties())):
            await until(is_told)


async def until_replicated(kit: Kit, database: Database) -> None:
    async def has_everything() -> bool:
        newest = await last_entry_id(kit.client, kit.keys.key("outbox"))
        return (await checkpoint(kit, database)).entry_id == newest

    await until(has_everything)


async def checkpoint(kit: Kit, database: Database) -> Checkpoint:
    found = await Checkpoints(database, kit.settings.partition).read()
    assert found is not None
    return found


async def rows(database: Database, statement: LiteralString, *parameters: object) -> list[tuple[Any, ...]]:
    async with database.session() as connection:
        return await (await connection.execute(statement, parameters or None)).fetchall()


async def execute(database: Database, statement: LiteralString, *parameters: object) -> None:
    async with database.session() as connection:
        await connection.execute(statement, parameters or None)


async def until_somebody_waits_for(database: Database, table: str) -> int:
    """The backend that waits for a lock on this table, or on a row of it."""
    found: list[int] = []

    async def waits() -> bool:
        found[:] = [
            row[0]
            for row in await rows(
                database,
                "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ %s AND pid IN "
                "(SELECT pid FROM pg_locks WHERE relation = %s::regclass OR NOT granted)",
                table,
                table,
            )
        ]
        return bool(found)

    await until(waits)
    return found[0]


async def until_open(kit: Kit) -> None:
    async def is_open() -> bool:
        try:
            await kit.insight.stats()
        except Unavailable:
            return False
        return True

    await until(is_open)


async def forget_everything(kit: Kit) -> None:
    """As after FLUSHALL, for this queue alone."""
    await kit.client.delete(*[key async for key in kit.client.scan_iter(match=f"*{kit.settings.queue_name}*")])
