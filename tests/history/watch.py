"""Looks on while things happen: no acknowledged task is missing, and nothing is trimmed that history does not have."""

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import psycopg
from psycopg import sql

from tests.history.witness import Ledger, OutboxCopy
from tests.kit import Kit
from tideq.queue_core.background import cancel_and_wait

LOOK_COUNT = 500
SAMPLE_COUNT = 30


class Watch:
    """`problems` must be empty in the end; `forgotten` are tasks that only history knew when they were looked for."""

    def __init__(self, kit: Kit, ledger: Ledger, copy: OutboxCopy, database_url: str, schema: str) -> None:
        self._kit = kit
        self._ledger = ledger
        self._copy = copy
        self._database_url = database_url
        self._schema = schema
        self._random = random.Random(3)
        self._unsure: set[str] = set()
        self.problems: list[str] = []
        self.forgotten: set[str] = set()
        self.trimmed_count = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        task = asyncio.create_task(self._look_for_ever())
        try:
            yield
        finally:
            await cancel_and_wait(task)
            if not task.cancelled() and (error := task.exception()):
                self.problems.append(str(error))

    async def look(self, task_ids: list[str]) -> None:
        """For these, and for those that could not be decided before because PostgreSQL was away."""
        for start in range(0, len(task_ids), LOOK_COUNT):
            asked = task_ids[start : start + LOOK_COUNT]
            found = await self._kit.queue.read_many(asked)
            missing = {task_id for task_id, task in zip(asked, found, strict=True) if task is None}
            self._unsure |= missing - self._ledger.purged
        first_kept = await self._copy.first_kept()
        await self._ask_history(first_kept)

    async def _look_for_ever(self) -> None:
        while True:
            known = self._ledger.ids
            with contextlib.suppress(psycopg.OperationalError):
                await self.look(self._random.sample(known, min(SAMPLE_COUNT, len(known))))
            await asyncio.sleep(0.05)

    async def _ask_history(self, first_kept: str | None) -> None:
        """After the store was asked: what it had forgotten by then, history must have by now."""
        async with await psycopg.AsyncConnection.connect(self._database_url, connect_timeout=2) as connection:
            await connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
            asked = [uuid.UUID(task_id) for task_id in self._unsure]
            rows = await connection.execute(
                "SELECT task_id::text FROM tasks WHERE task_id = ANY (%s::uuid[])", (asked,)
            )
            present = {row[0] for row in await rows.fetchall()}
            checkpoint: Any = await (await connection.execute("SELECT entry_id FROM checkpoints")).fetchone()
        self.forgotten |= present
        for task_id in self._unsure - present - self._ledger.purged:
            self.problems.append(f"{task_id} was acknowledged, and neither store nor history has it")
        self._unsure.clear()
        self._check_trimming(first_kept, checkpoint[0] if checkpoint else "0-0")

    def _check_trimming(self, first_kept: str | None, checkpoint: str) -> None:
        for entry_id in self._copy.entry_ids[self.trimmed_count :]:
            if first_kept is None or _order(entry_id) >= _order(first_kept):
                return
            self.trimmed_count += 1
            if _order(entry_id) > _order(checkpoint):
                self.problems.append(f"{entry_id} was trimmed, and history has come to {checkpoint} only")


def _order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)
