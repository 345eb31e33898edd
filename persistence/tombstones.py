"""Tombstones: which lives of tasks were purged lately, so that nothing brings them back.

An id can be submitted anew after its purge. So a tombstone speaks of a life, which is known by when it was created.
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
    """In the transaction that deletes the rows; in an order in which two writers cannot lock each other out."""
    columns = [list(column) for column in zip(*sorted(tombstones), strict=True)]
    if columns:
        await connection.execute(statement("add_tombstones"), columns)


async def purged_tasks(connection: Connection, task_ids: Sequence[str]) -> dict[str, PurgedTask]:
    """Of those of these tasks that have a tombstone."""
    found = await connection.execute(statement("tombstones"), (list(task_ids),))
    return {task_id: PurgedTask(*life) for task_id, *life in await found.fetchall()}
