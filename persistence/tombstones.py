"""Tombstones: tasks that were purged during the last day, so that no recovery restores them.

An id can be submitted again after its purge. So a tombstone covers only tasks of that id created up to `created_ms`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tideq.persistence.database import Connection, statement


class Tombstone(NamedTuple):
    task_id: str
    epoch: int
    version: int
    created_ms: int


class PurgedTask(NamedTuple):
    version: int
    created_ms: int


async def add_tombstones(connection: Connection, tombstones: Iterable[Tombstone]) -> None:
    """Call it in the transaction that deletes the rows. The fixed order keeps two writers from a deadlock."""
    columns = [list(column) for column in zip(*sorted(tombstones), strict=True)]
    if columns:
        await connection.execute(statement("add_tombstones"), columns)


async def purged_tasks(connection: Connection, task_ids: Sequence[str]) -> dict[str, PurgedTask]:
    """Returns the tombstones of these tasks, by task id."""
    found = await connection.execute(statement("tombstones"), (list(task_ids),))
    return {task_id: PurgedTask(*life) for task_id, *life in await found.fetchall()}
