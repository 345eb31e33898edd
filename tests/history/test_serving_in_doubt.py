"""A running service whose store is in doubt: it says so, and never that a task does not exist."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.running import Running, environ, serving
from tests.history.servers import Server, own_postgres, own_valkey
from tests.history.situations import replicate_all, until, until_open
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.settings import QueueSettings

UNKNOWN = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Server]:
    with own_postgres(tmp_path / "postgres") as server:
        yield server


@pytest.fixture
def history_settings(postgres: Server) -> HistorySettings:
    return HistorySettings(database_url=postgres.database_url)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    with own_valkey(tmp_path / "valkey") as server:
        yield StoreUnderTest("valkey", server.redis_url)


@pytest.fixture
def service_settings(
    store: StoreUnderTest, queue_settings: QueueSettings, history_settings: HistorySettings
) -> dict[str, str]:
    return environ(store.url, queue_settings.queue_name, DATABASE_URL=history_settings.database_url)


async def test_an_emptied_store_is_answered_with_503_until_history_is_back_and_it_is_rebuilt(
    kit: Kit,
    kept: OpenStore,
    migrated: Database,
    store: StoreUnderTest,
    postgres: Server,
    service_settings: dict[str, str],
    tmp_path: Path,
) -> None:
    task_id = await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    (logs := tmp_path / "logs").mkdir()

    with serving(service_settings, logs) as running:
        await _answers(running, task_id)
        postgres.stop()
        await kit.client.flushall()
        await _refuses(running, task_id)
        with serving(service_settings, logs) as started_late:
            await _refuses(started_late, task_id)
            postgres.start()
            await _answers(running, task_id)
            await _answers(started_late, task_id)
    await until_open(kit)


async def _refuses(running: Running, task_id: str) -> None:
    async with httpx.AsyncClient(base_url=running.url, timeout=30) as http:
        answers = await asyncio.gather(
            http.get(f"/api/v1/tasks/{task_id}"),
            http.get(f"/api/v1/tasks/{UNKNOWN}"),
            http.get(f"/api/v1/tasks/{task_id}/explain"),
            http.delete(f"/api/v1/tasks/{task_id}"),
            http.post(f"/api/v1/tasks/{task_id}/retry"),
            http.post("/api/v1/tasks", json={"task_type": "resize"}),
            http.post("/api/v1/queue/pause", json={}),
            http.get("/api/v1/queue/stats"),
            http.get("/api/v1/workers"),
            http.post("/internal/workers/register", json={"capacity": 1}),
            http.get("/readyz"),
        )
        assert [answer.status_code for answer in answers] == [503] * len(answers), [a.text for a in answers]
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
        assert (await http.get("/livez")).status_code == 200


async def _answers(running: Running, task_id: str) -> None:
    async with httpx.AsyncClient(base_url=running.url, timeout=30) as http:

        async def is_ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await until(is_ready)
        assert (await http.get(f"/api/v1/tasks/{task_id}")).json()["status"] == "queued"
