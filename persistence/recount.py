"""Recount: what the store counts as ended, set right by history.

The store counts as tasks end; it forgets that with everything else where it is lost, and a version that does not count
yet leaves it off. So from time to time history is counted, what the outbox has yet to tell it is reckoned in, and the
difference is added. It does not matter how the difference came about, nor what ends while it is looked for.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.persistence.database import MENDING, Connection, Database, statement
from tideq.persistence.recovery.parked import parked_tasks
from tideq.queue_core.engine.ended import Ended, EndedTasks, Kind, folded, named_kinds
from tideq.queue_core.engine.engine import Engine
from tideq.queue_core.engine.feed import Feed
from tideq.queue_core.lanes import task_type_of
from tideq.queue_core.states import Reason
from tideq.queue_core.task_id import is_task_id
from tideq.queue_core.transitions import TERMINAL

LOCK = 7_305_005
EVERY_MS = 86_400_000
STATES = sorted(TERMINAL)

log = structlog.get_logger(__name__)


class NotNow(RuntimeError):
    """The store and history cannot be compared at this moment, and a little later they can."""


async def share_counts(connection: Connection, schema: str) -> None:
    """For whoever removes counted tasks from history, and then from the store's counts; held until it disconnects."""
    await connection.execute("SELECT pg_advisory_lock_shared(%s, hashtext(%s))", (LOCK, schema))


class Recount:
    def __init__(self, database: Database, client: Any, engine: Engine) -> None:
        self._database = database
        self._parts = [
            Part(
                EndedTasks(part.scripts),
                Feed(client, client, part.keys),
                Checkpoints(database, part.settings.partition),
                part.settings.partition,
            )
            for part in engine.parts
        ]

    async def is_due(self) -> bool:
        """After a new epoch of the store, which may have lost what it had counted, and daily. Reads two values."""
        return any(await asyncio.gather(*(part.ended.is_due(EVERY_MS) for part in self._parts)))

    async def run(self) -> dict[Kind, int]:
        """What had to be added; raises NotNow. Reads an index of all tasks."""
        async with self._database.session(limits=MENDING) as connection:
            looks, expected = await self._compared(connection)
        corrections = _corrections([look.counts for look in looks], expected)
        await self._set_right(looks, corrections)
        differences: Counter[Kind] = Counter()
        for each in corrections:
            differences.update(each)
        return {kind: amount for kind, amount in differences.items() if amount}

    async def _compared(self, connection: Connection) -> tuple[list[Ended], Counter[Kind]]:
        """The stores as they are, and how many tasks have ended by what history and they know, as of one instant.

        Whoever removes tasks from both is kept from it until the stores were looked at; partitions stay to the end.
        """
        await connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, self._database.schema))
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await connection.execute("LOCK TABLE tasks IN ACCESS SHARE MODE")
            checkpoints = [await part.checkpoints.read_with(connection) for part in self._parts]
            looks = await asyncio.gather(
                *(part.look(checkpoint) for part, checkpoint in zip(self._parts, checkpoints, strict=True))
            )
            await connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", (LOCK, self._database.schema))
            expected = await _counted(connection)
            words = [await part.last_words(connection, look) for part, look in zip(self._parts, looks, strict=True)]
            expected.update(kind for each in words for kind in each.values() if kind)
            expected.subtract(await _kinds_of(connection, {task_id for each in words for task_id in each}))
        return looks, expected

    async def _set_right(self, looks: Sequence[Ended], corrections: Sequence[Mapping[Kind, int]]) -> None:
        for part, look, added in zip(self._parts, looks, corrections, strict=True):
            if not await part.ended.set_right(look, added):
                raise NotNow("somebody else recounts as well")
            if added:
                told = {" ".join(kind): amount for kind, amount in added.items()}
                log.info("ended tasks recounted", added=told)


class Part:
    """One partition of the store, as it is compared with history."""

    def __init__(self, ended: EndedTasks, feed: Feed, checkpoints: Checkpoints, number: int) -> None:
        self.ended = ended
        self.checkpoints = checkpoints
        self._feed = feed
        self._number = number

    async def look(self, checkpoint: Checkpoint | None) -> Ended:
        if checkpoint is None or str(checkpoint.epoch) != self.ended.present_epoch:
            raise NotNow("history does not follow the store yet")
        look = await self.ended.look(checkpoint.entry_id)
        if not look.is_whole or await self._feed.gap_after(checkpoint.entry_id):
            raise NotNow("history is too far behind the store")
        return look

    async def last_words(self, connection: Connection, look: Ended) -> dict[str, Kind | None]:
        """Of tasks that history's rows are behind with: what is parked, and what the outbox has."""
        words: dict[str, Kind | None] = {}
        for task in await parked_tasks(connection, self._number):
            state = task.record.text("state")
            has_ended = state in STATES and task.record.text("reason") != Reason.PURGED
            words[task.restored.task_id] = (task_type_of(task.restored.signature), state) if has_ended else None
        return words | {task_id: kind for task_id, kind in look.last_words.items() if is_task_id(task_id)}


def _corrections(counted: Sequence[Mapping[Kind, int]], expected: Mapping[Kind, int]) -> list[dict[Kind, int]]:
    """What to add to each partition's counts, so that they add up to what is expected.

    Each takes the names of kinds that are rare by now off its own counts; what is missing then is the first one's.
    """
    known = dict.fromkeys((kind for counts in counted for kind in counts), 0)
    named = named_kinds({**known, **expected})
    kept = [folded(counts, named) for counts in counted]
    missing = folded(expected, named)
    for counts in kept:
        missing.subtract(counts)
    kept[0].update(missing)
    for target, counts in zip(kept, counted, strict=True):
        target.subtract(counts)
    return [{kind: amount for kind, amount in added.items() if amount} for added in kept]


async def _counted(connection: Connection) -> Counter[Kind]:
    found = await connection.execute(statement("count_ended"), (STATES,))
    return Counter({(task_type, state): count for task_type, state, count in await found.fetchall()})


async def _kinds_of(connection: Connection, task_ids: set[str]) -> list[Kind]:
    """How those ended that history shows as ended."""
    found = await connection.execute(statement("ended_kinds"), (sorted(task_ids), STATES))
    return [(task_type, state) for _, task_type, state in await found.fetchall()]
