"""The whole service over HTTP on a cluster: API, monitor, replicator and worker as processes, and history."""

import asyncio
import contextlib
import json
import subprocess
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.running import TIDEQ, environ, serving
from tests.partitions.cluster import Cluster, running_cluster
from tideq.queue_core.task_id import partition_of

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def settings(cluster: Cluster, database_url: str) -> dict[str, str]:
    return environ(
        cluster.url,
        f"p{uuid.uuid4().hex[:8]}",
        DATABASE_URL=database_url,
        TIDEQ_PARTITIONS="8",
        TIDEQ_LOG_TRANSITIONS="off",
    )


@contextlib.contextmanager
def beside(settings: dict[str, str], folder: Path, *arguments: str) -> Generator[None]:
    """Another process of the service; killed at the end."""
    with (folder / f"{arguments[0]}.log").open("w") as said:
        process = subprocess.Popen(
            [TIDEQ, *arguments], cwd=Path(__file__).parent, env=settings, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def url(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    subprocess.run([TIDEQ, "migrate"], env=settings, check=True, timeout=PATIENCE_SECONDS)
    folder = tmp_path_factory.mktemp("logs")
    with (
        serving(settings, folder) as server,
        beside(settings, folder, "monitor"),
        beside(settings, folder, "replicate"),
    ):
        yield server.url


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        yield http


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await condition()):
            await asyncio.sleep(0.05)
    return found


async def submit(http: httpx.AsyncClient, **fields: Any) -> str:
    answer = await http.post("/api/v1/tasks", json=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()["task_id"]


class Listening:
    """Transitions by task, and the last event's id, as a browser would keep it."""

    def __init__(self) -> None:
        self.states: dict[str, list[str]] = {}
        self.last_id = ""
        self.count = 0

    async def hear(self, http: httpx.AsyncClient, is_enough: Callable[[], bool]) -> None:
        headers = {"Last-Event-ID": self.last_id} if self.last_id else {}
        async with asyncio.timeout(PATIENCE_SECONDS), http.stream("GET", "/api/v1/events", headers=headers) as stream:
            async for line in stream.aiter_lines():
                kind, _, value = line.partition(": ")
                if kind == "id":
                    self.last_id = value
                if kind == "event":
                    assert value == "transition"
                if kind == "data":
                    told = json.loads(value)
                    self.states.setdefault(told["task_id"], []).append(told["status"])
                    self.count += 1
                if self.last_id and is_enough():
                    return


async def test_a_life_over_http_is_the_same_on_eight_partitions(
    http: httpx.AsyncClient, url: str, settings: dict[str, str], tmp_path: Path
) -> None:
    await submit(http, task_type="nobody", delay_seconds=3_600)
    listening = Listening()
    await listening.hear(http, lambda: True)
    doubles = [await submit(http, task_type="double", parameters={"number": n}) for n in range(24)]
    refused = [await submit(http, task_type="refuse", parameters={"number": n}, max_retries=0) for n in range(4)]
    given_up = await submit(http, task_type="nobody")
    assert len({partition_of(task_id) for task_id in doubles}) > 2
    assert (await http.delete(f"/api/v1/tasks/{given_up}")).status_code == 200
    expected = [*doubles, *refused, given_up]

    # Half of the events before a listener loses its connection, the rest after it came back.
    await listening.hear(http, lambda: len(listening.states) >= 15)
    with beside(settings, tmp_path, "worker", "--url", url, "--handlers", "handlers"):
        ends = {"completed", "dead_letter", "cancelled", "failed"}
        await listening.hear(http, lambda: sum(states[-1] in ends for states in listening.states.values()) >= 29)

    assert {task_id: listening.states[task_id] for task_id in doubles} == {
        task_id: ["queued", "assigned", "executing", "completed"] for task_id in doubles
    }
    assert set(listening.states) == set(expected)

    async def with_history(task_id: str) -> Any:
        task = (await http.get(f"/api/v1/tasks/{task_id}", params={"include_history": "true"})).json()
        return task if len(task["state_history"]) >= 4 else None

    for number, task_id in enumerate(doubles):
        task = await until(lambda task_id=task_id: with_history(task_id))
        assert (task["status"], task["result"]) == ("completed", number * 2)
        assert [each["state"] for each in task["state_history"]] == ["queued", "assigned", "executing", "completed"]

    async def listed() -> Any:
        page = (await http.get("/api/v1/tasks", params={"limit": 100, "count": "true"})).json()
        states = Counter(task["status"] for task in page["tasks"])
        return states if states["completed"] == 24 and page["total"] == 30 else None

    assert (await until(listed))["cancelled"] == 1
    stats = (await http.get("/api/v1/queue/stats")).json()
    assert stats["queue"]["total_depth"] == 1
    assert stats["throughput"]["completed_last_minute"] == 24
    dead = (await http.get("/api/v1/dlq")).json()["tasks"]
    assert {task["task_id"] for task in dead} == set(refused)

    retried = await http.post(f"/api/v1/tasks/{refused[0]}/retry", json={})
    assert retried.status_code == 200, retried.text
    assert (await http.get(f"/api/v1/tasks/{refused[0]}")).json()["status"] == "queued"
    assert (await http.get("/api/v1/queue/tide")).json()["ready_count"] == 1


async def test_a_poll_that_asks_for_started_tasks_is_given_assigned_ones(http: httpx.AsyncClient) -> None:
    """What a partition gave without being heard comes back when its assignment lapses, not at a deadline far away."""
    registered = (await http.post("/internal/workers/register", json={"task_types": ["sort"], "capacity": 8})).json()
    worker = f"/internal/workers/{registered['worker_id']}"
    for number in range(8):
        await submit(http, task_type="sort", parameters={"number": number})

    asked = {"available_capacity": 8, "poll_id": "p1", "start_claimed": True}
    tasks = (await http.post(f"{worker}/poll", json=asked)).json()["tasks"]

    assert [task["status"] for task in tasks] == ["assigned"] * 8
    held = [{"task_id": task["task_id"], "lease": task["lease"]} for task in tasks]
    outcomes = (await http.post(f"{worker}/sync", json={"starts": held})).json()["outcomes"]
    assert [outcome["ok"] for outcome in outcomes] == [True] * 8


async def test_a_long_poll_is_answered_whatever_partition_the_task_comes_to(http: httpx.AsyncClient) -> None:
    registered = (await http.post("/internal/workers/register", json={"task_types": ["resize"], "capacity": 50})).json()
    worker = f"/internal/workers/{registered['worker_id']}"
    for number in range(8):
        poll = asyncio.create_task(http.post(f"{worker}/poll", json={"available_capacity": 1, "wait_seconds": 20}))
        task_id = await submit(http, task_type="resize", parameters={"number": number})

        (task,) = (await poll).json()["tasks"]

        assert task["task_id"] == task_id
    members = (await http.get("/api/v1/workers")).json()["workers"]
    held = {member["worker_id"]: member["held"] for member in members}
    assert held[registered["worker_id"]] == 8
