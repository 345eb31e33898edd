"""Whatever happens to replicators and to PostgreSQL, in the end history says what happened. Real processes, real load.

Every day the minute of outage is one of seconds: see scale.py. What is written in it is more than any one batch.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.api.running import environ
from tests.history.checker import differences, read_history
from tests.history.load import BUSY, Load
from tests.history.scale import KILL_AFTER_SECONDS, OUTAGE_SECONDS
from tests.history.servers import Server, command, own_postgres
from tests.history.watch import Watch
from tests.history.witness import Ledger, OutboxCopy
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.settings import QueueSettings

CATCH_UP_SECONDS = 90 + OUTAGE_SECONDS
LEADER = """
SELECT pid, application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND classid = 7305003
"""


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with own_postgres(tmp_path_factory.mktemp("own") / "postgres") as server:
        yield server


@pytest.fixture
def history_settings(postgres: Server) -> HistorySettings:
    postgres.start()
    return HistorySettings(database_url=postgres.database_url)


@pytest.fixture
def settings() -> QueueSettings:
    return BUSY


@dataclass
class Scene:
    """A queue under load, whatever replicates it, and who looks on."""

    kit: Kit
    postgres: Server
    url: str
    schema: str
    copy: OutboxCopy
    ledger: Ledger
    watch: Watch
    start_replicator: Callable[[], subprocess.Popen[bytes]]

    async def lasts(self, seconds: float) -> None:
        """The load goes on meanwhile."""
        await asyncio.sleep(seconds)

    async def query(self, statement: Any) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            return await (await connection.execute(statement)).fetchall()

    async def checkpoint(self) -> str:
        try:
            rows = await self.query(f'SELECT entry_id FROM "{self.schema}".checkpoints')  # noqa: S608 - our own name
        except psycopg.OperationalError:
            return ""
        return rows[0][0]

    async def until_replicated(self) -> None:
        """The load has ended: until history has all of it."""
        async with asyncio.timeout(CATCH_UP_SECONDS):
            await self.copy.whole()
            while await self.checkpoint() != self.copy.entry_ids[-1]:
                await asyncio.sleep(0.05)

    async def until_forgotten(self) -> None:
        """Until every finished task has left the store, also those whose replicator died before it could say so."""
        async with asyncio.timeout(CATCH_UP_SECONDS):
            while any(each["ended_ms"] for each in (await self.kit.insight.snapshot()).records.values()):
                await self.kit.clock.advance(self.kit.settings.retention.result_ttl_ms)
                await self.kit.queue.sweep()
                await asyncio.sleep(0.05)

    async def check(self, least_count: int) -> None:
        """Lapsed claims come back while the store forgets, and are replicated too."""
        await self.until_replicated()
        await self.until_forgotten()
        await self.until_replicated()
        await self.watch.look(self.ledger.ids)
        assert self.watch.problems == []
        history = read_history(self.url, self.schema)
        assert differences(history, await self.copy.whole(), self.ledger) == []
        assert history.parked == []
        assert len(self.ledger.parameters) >= least_count
        assert {task[2] for task in history.tasks.values()} >= {"completed", "failed", "dead_letter", "cancelled"}
        assert self.watch.forgotten >= {task_id for task_id, task in history.tasks.items() if task[6]}


@pytest.fixture
async def scene(
    kit: Kit, store: StoreUnderTest, migrated: Database, postgres: Server, tmp_path: Path
) -> AsyncIterator[Scene]:
    url, schema, ledger = postgres.database_url, migrated.schema, Ledger()
    settings = {
        **environ(store.url, kit.settings.queue_name, DATABASE_URL=url),
        "TIDEQ_RESULT_TTL_SECONDS": str(kit.settings.retention.result_ttl_ms / 1000),
    }
    with ExitStack() as processes:

        def start_replicator() -> subprocess.Popen[bytes]:
            number = len(list(tmp_path.iterdir()))
            named = {**settings, "PGAPPNAME": f"replicator-{number}"}
            return processes.enter_context(command(named, tmp_path / f"replicator-{number}.log", "replicate"))

        async with OutboxCopy(store.url, kit.keys.key("outbox")) as copy:
            watch = Watch(kit, ledger, copy, url, schema)
            yield Scene(kit, postgres, url, schema, copy, ledger, watch, start_replicator)


async def test_postgres_stopped_under_load_and_started_again_leaves_no_gap(scene: Scene) -> None:
    scene.start_replicator()

    async with scene.watch.running(), Load(scene.kit, scene.ledger).running():
        await _leader(scene)
        await scene.lasts(1)
        scene.postgres.stop()
        before = await scene.copy.added_count()
        await scene.lasts(OUTAGE_SECONDS)
        outage = await scene.copy.added_count() - before
        scene.postgres.start()
        await scene.lasts(1)

    assert outage > 1_000, "more entries than the replicator leaves in the stream anyway"
    await scene.check(500)


async def test_postgres_killed_again_and_again_leaves_no_gap(scene: Scene) -> None:
    scene.start_replicator()

    async with scene.watch.running(), Load(scene.kit, scene.ledger).running():
        for seconds in (0.1, 0.3, 0.6, 0.9):
            await _leader(scene)
            await scene.lasts(seconds)
            scene.postgres.kill()
            await scene.lasts(0.2)
            scene.postgres.start()

    await scene.check(500)


async def test_a_replicator_killed_again_and_again_leaves_no_gap_and_repeats_nothing(scene: Scene) -> None:
    """Every two seconds or so: a process takes longer to start than it is given to work."""
    async with scene.watch.running(), Load(scene.kit, scene.ledger).running():
        for seconds in KILL_AFTER_SECONDS:
            replicator = scene.start_replicator()
            await _leader(scene)
            await scene.lasts(seconds)
            replicator.kill()
            replicator.wait()
    scene.start_replicator()

    await scene.check(500)


async def test_of_three_replicators_one_works_and_a_stopped_one_does_no_harm_when_it_wakes(scene: Scene) -> None:
    replicators = {f"replicator-{number}": scene.start_replicator() for number in range(3)}

    async with scene.watch.running(), Load(scene.kit, scene.ledger).running():
        backend, name = await _leader(scene)
        await scene.lasts(1)
        stopped = replicators[name]
        os.kill(stopped.pid, signal.SIGSTOP)
        await scene.lasts(0.5)
        at_stop = await scene.checkpoint()
        await scene.lasts(1)
        assert await scene.checkpoint() == at_stop, "the others wait for who has the lock, asleep or not"
        await scene.query(f"SELECT pg_terminate_backend({backend})")
        await _leader(scene, but_not=name)
        os.kill(stopped.pid, signal.SIGCONT)
        await scene.lasts(1.5)

    assert all(replicator.poll() is None for replicator in replicators.values())
    await scene.check(500)


async def _leader(scene: Scene, but_not: str = "") -> tuple[int, str]:
    async with asyncio.timeout(CATCH_UP_SECONDS):
        while not (leaders := [row for row in await scene.query(LEADER) if row[1] != but_not]):
            await asyncio.sleep(0.05)
    return leaders[0]
