"""How safe a submission is when it is answered: the level that was asked for, or a clear no."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.api.bench import Bench, assert_problem
from tests.kit import Kit
from tests.stores import StoreUnderTest, free_port
from tideq.api.app import create_app
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings
from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey, find_running
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import replicators_of
from tideq.persistence.replication.batch import Batch
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.background import background_task
from tideq.queue_core.settings import QueueSettings

HOUR_MS = 3_600_000


async def submit(http: httpx.AsyncClient, level: str) -> httpx.Response:
    return await http.post("/api/v1/tasks", json={"task_type": "resize", "durability": level})


async def test_an_ordinary_answer_says_that_the_store_has_it(bench: Bench) -> None:
    assert (await bench.call("POST", "/api/v1/tasks", {"task_type": "resize"}))["durability"] == "store"


async def test_a_level_the_store_can_give_is_reached_and_named(http: httpx.AsyncClient) -> None:
    answer = await submit(http, "disk")

    assert answer.status_code == 201
    assert answer.json()["durability"] == "disk"


@pytest.mark.parametrize("level", ["replica", "history"])
async def test_a_level_the_service_cannot_give_is_refused_and_leaves_nothing(
    http: httpx.AsyncClient, kit: Kit, level: str
) -> None:
    before = await kit.dump()

    answer = await submit(http, level)

    assert_problem(answer, 422, "durability-unavailable")
    assert f"durability '{level}' is not available" in answer.json()["detail"]
    assert await kit.dump() == before


@pytest.mark.parametrize("store", ["redis7"], indirect=True)
async def test_a_store_without_waitaof_cannot_promise_its_disk(http: httpx.AsyncClient) -> None:
    assert_problem(await submit(http, "disk"), 422, "durability-unavailable")


async def test_a_batch_is_as_safe_as_its_most_demanding_task(http: httpx.AsyncClient) -> None:
    tasks = [{"task_type": "resize"}, {"task_type": "resize", "durability": "disk"}]

    answer = await http.post("/api/v1/tasks/batch", json={"tasks": tasks})

    assert [task["durability"] for task in answer.json()["tasks"]] == ["store", "disk"]


async def test_an_unknown_level_is_refused(http: httpx.AsyncClient) -> None:
    assert_problem(await submit(http, "forever"), 422)


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A store with a replica: where the store is, and the replica's process."""
    port = free_port()
    primary = ValkeyOptions(binary=bundled_valkey(), port=port)
    replica = ValkeyOptions(binary=bundled_valkey(), flags=("--replicaof", f"127.0.0.1 {port}"))
    with (
        EmbeddedStores(tmp_path / "primary", valkey=primary, postgres=None) as first,
        EmbeddedStores(tmp_path / "replica", valkey=replica, postgres=None),
    ):
        instance = find_running(tmp_path / "replica")
        assert instance is not None
        yield first.redis_url, instance.server_pids[0]


async def test_a_replica_that_has_it_is_waited_for_and_one_that_hangs_is_not_waited_for_forever(
    replicated: tuple[str, int],
) -> None:
    url, replica_pid = replicated
    settings = ServiceSettings(auth="off", redis_url=url, durability_timeout_ms=300)
    async with open_service(settings) as service, _http(service) as http:
        while (taken := await submit(http, "replica")).status_code != 201:
            pass
        assert taken.json()["durability"] == "replica"

        os.kill(replica_pid, signal.SIGSTOP)
        late = await submit(http, "replica")
        os.kill(replica_pid, signal.SIGCONT)

        problem = assert_problem(late, 504, "durability-not-reached")
        assert problem["durability"] == "store"
        assert (await http.get(f"/api/v1/tasks/{problem['task_id']}")).json()["status"] == "queued"


async def test_history_has_what_was_answered_with_it(store: StoreUnderTest, database_url: str) -> None:
    async with _service_with_history(store, database_url) as service, _http(service) as http:
        kept = service.store
        assert kept.database is not None
        late = await submit(http, "history")
        async with (
            replicators_of(kept, store.url) as replicator,
            background_task(replicator.run_for_ever()),
        ):
            answer = await submit(http, "history")
        async with kept.database.reading() as connection:
            rows = await (await connection.execute("SELECT task_id::text FROM tasks")).fetchall()

    assert_problem(late, 504, "durability-not-reached")
    assert answer.json()["durability"] == "history"
    assert {task_id for (task_id,) in rows} == {late.json()["task_id"], answer.json()["task_id"]}


async def test_whoever_asks_for_history_does_not_wait_until_a_replicator_has_lingered(
    store: StoreUnderTest, database_url: str
) -> None:
    batches: list[Batch] = []
    async with (
        _service_with_history(store, database_url, timeout_ms=45_000) as service,
        _http(service) as http,
        replicators_of(service.store, store.url, batches.append, HOUR_MS) as replicator,
        background_task(replicator.run_for_ever()),
    ):
        answers = [await submit(http, "history") for _ in range(3)]
        together = await asyncio.gather(*(submit(http, "history") for _ in range(20)))

    assert {answer.json()["durability"] for answer in (*answers, *together)} == {"history"}
    assert len(batches) < 3 + 20, "those who waited together were written together"


@asynccontextmanager
async def _service_with_history(
    store: StoreUnderTest, database_url: str, timeout_ms: int = 1_000
) -> AsyncGenerator[Service]:
    queue = QueueSettings(queue_name=uuid.uuid4().hex[:12])
    async with Database(database_url, queue.queue_name) as database:
        await migrate(database)
    history = HistorySettings(database_url=database_url)
    settings = ServiceSettings(auth="off", redis_url=store.url, history=history, queue=queue)
    async with open_service(msgspec.structs.replace(settings, durability_timeout_ms=timeout_ms)) as service:
        yield service


@asynccontextmanager
async def _http(service: Service) -> AsyncGenerator[httpx.AsyncClient]:
    app: Any = create_app(service)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq") as client:
        yield client
