"""Removing finished tasks, one and many, from the store and from history."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench, assert_problem
from tests.api.replication import Replication
from tests.kit import Kit
from tideq.api.service import Service
from tideq.persistence.schema.partitions import TABLES
from tideq.queue_core.settings import QueueSettings, Retention

OLD_ID = "0192f0c1-2b3c-7d4e-8f50-112233445566"


@pytest.fixture
def has_history() -> bool:
    return True


@pytest.fixture
def settings() -> QueueSettings:
    return QueueSettings(retention=Retention(result_ttl_ms=20))


async def ended(bench: Bench, status: str = "completed", task_type: str = "resize", **fields: Any) -> str:
    """A task in this terminal state."""
    task_id = await bench.submit(task_type, max_retries=0, **fields)
    if status == "cancelled":
        await bench.call("DELETE", f"/api/v1/tasks/{task_id}")
        return task_id
    worker_id = await bench.register(task_types=[task_type])
    task = await bench.started(worker_id)
    if status == "completed":
        await bench.tell(worker_id, "result", task, status="completed", result=1)
    else:
        error = {"message": "no", "retriable": status == "dead_letter"}
        await bench.tell(worker_id, "result", task, status="failed", error=error)
    return task_id


async def clean_up(bench: Bench, query: str = "older_than=0") -> int:
    return (await bench.call("DELETE", f"/api/v1/tasks?{query}"))["deleted"]


async def rows_left(replication: Replication, task_id: str) -> int:
    await replication.done()
    async with replication.archive.database.session() as connection:
        total = 0
        for table in TABLES:
            found = await connection.execute(f"SELECT count(*) FROM {table} WHERE task_id = %s", (task_id,))  # noqa: S608 # pyright: ignore[reportArgumentType]
            total += (await found.fetchall())[0][0]
        return total


async def exists(http: httpx.AsyncClient, task_id: str) -> bool:
    return (await http.get(f"/api/v1/tasks/{task_id}")).status_code == 200


@pytest.mark.parametrize("is_forgotten", [False, True])
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "dead_letter"])
async def test_a_finished_task_is_gone_from_everywhere(
    bench: Bench, http: httpx.AsyncClient, kit: Kit, replicated: Replication, status: str, is_forgotten: bool
) -> None:
    task_id = await ended(bench, status, idempotency_key="k", tags={"a": "b"})
    if is_forgotten:
        await replicated.forgotten(task_id)

    deleted = await clean_up(bench)

    assert deleted == 1
    assert not await exists(http, task_id)
    assert await rows_left(replicated, task_id) == 0
    assert not await exists(http, task_id)
    assert (await kit.insight.stats()).dead_letter_count == 0
    assert await bench.submit(idempotency_key="k") != task_id
    assert await clean_up(bench) == 0


async def test_only_what_ended_long_enough_ago_goes(
    bench: Bench, http: httpx.AsyncClient, replicated: Replication
) -> None:
    old = await ended(bench)
    await asyncio.sleep(0.002)
    instant = (await bench.read(new := await ended(bench)))["completed_at"]
    await replicated.forgotten(old)

    assert await clean_up(bench, "older_than=1h") == 0
    assert await clean_up(bench, f"older_than={instant}") == 1

    assert [await exists(http, task_id) for task_id in (old, new)] == [False, True]


@pytest.mark.parametrize("written", ["0", "0s", "0.001s", "0m", "0h", "0d", "0w"])
async def test_an_age_can_be_written_in_any_unit(bench: Bench, replicated: Replication, written: str) -> None:
    await ended(bench)
    await asyncio.sleep(0.003)

    assert await clean_up(bench, "older_than=7d") == 0
    assert await clean_up(bench, f"older_than={written}") == 1


async def test_an_instant_may_have_any_offset(bench: Bench, replicated: Replication) -> None:
    await ended(bench)
    past, future = datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) + timedelta(hours=1)

    assert await clean_up(bench, f"older_than={past.isoformat().replace('+00:00', 'Z')}") == 0
    assert await clean_up(bench, f"older_than={future.isoformat().replace('+00:00', '%2B00:00')}") == 1


async def test_status_and_type_narrow_it(bench: Bench, http: httpx.AsyncClient, replicated: Replication) -> None:
    made = {
        (status, task_type): await ended(bench, status, task_type)
        for status in ("completed", "failed", "cancelled")
        for task_type in ("resize", "crawl")
    }
    await replicated.forgotten(made["failed", "crawl"])

    assert await clean_up(bench, "older_than=0&status=failed&status=cancelled&task_type=crawl") == 2

    left = {key for key, task_id in made.items() if await exists(http, task_id)}
    assert left == made.keys() - {("failed", "crawl"), ("cancelled", "crawl")}


async def test_live_tasks_are_never_touched(bench: Bench, http: httpx.AsyncClient, replicated: Replication) -> None:
    worker_id = await bench.register()
    live = [await bench.submit() for _ in range(3)]
    await bench.started(worker_id)
    await bench.claimed(worker_id)

    assert await clean_up(bench) == 0

    assert all([await exists(http, task_id) for task_id in live])


async def test_a_task_revived_just_before_history_hears_of_it_stays(
    bench: Bench, http: httpx.AsyncClient, replicated: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """History still says that it failed; the store says that it waits."""
    monkeypatch.setattr("tideq.persistence.cleanup.CATCH_UP_SECONDS", 0.05)
    task_id, gone = await ended(bench, "failed"), await ended(bench, "failed")
    await replicated.forgotten(task_id, gone)
    await bench.call("POST", f"/api/v1/tasks/{task_id}/retry")
    await replicated.stop()

    assert await clean_up(bench) == 1

    await replicated.start()
    told = await bench.call("GET", f"/api/v1/tasks/{task_id}?include_history=true")
    assert (told["status"], [step["version"] for step in told["state_history"]]) == ("queued", [1, 2, 3, 4, 5])
    assert not await exists(http, gone)


async def test_retrying_and_cleaning_up_at_once_leaves_a_whole_task_or_none(
    bench: Bench, http: httpx.AsyncClient, service: Service, replicated: Replication
) -> None:
    """Many races of the two: whoever wins, no task is left without its past, and none is half gone."""
    outcomes: set[tuple[int, int]] = set()
    for _ in range(25):
        task_id = await ended(bench, "failed")
        await replicated.forgotten(task_id)

        retried, cleaned = await asyncio.gather(
            http.post(f"/api/v1/tasks/{task_id}/retry"), http.delete("/api/v1/tasks?older_than=0")
        )

        outcomes.add((retried.status_code, cleaned.json()["deleted"]))
        if retried.status_code == 200:
            told = await bench.call("GET", f"/api/v1/tasks/{task_id}?include_history=true")
            assert [step["version"] for step in told["state_history"]] == [1, 2, 3, 4, 5]
            await bench.call("DELETE", f"/api/v1/tasks/{task_id}")
            await bench.call("DELETE", f"/api/v1/tasks/{task_id}?purge=true")
        else:
            assert await rows_left(replicated, task_id) == 0
    assert outcomes <= {(200, 0), (404, 1)}


async def test_many_go_in_batches(bench: Bench, replicated: Replication, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideq.persistence.cleanup.BATCH_SIZE", 7)
    made = [await ended(bench, "cancelled") for _ in range(30)]
    await replicated.forgotten(*made)
    fresh = [await ended(bench, "cancelled") for _ in range(10)]

    assert await clean_up(bench) == len(made) + len(fresh)

    await replicated.done()
    assert (await bench.call("GET", "/api/v1/tasks?count=true"))["total"] == 0


@pytest.mark.parametrize(
    "query",
    [
        "",
        "older_than=",
        "older_than=soon",
        "older_than=-1d",
        "older_than=1y",
        "older_than=2026-13-01T00:00:00Z",
        "older_than=0&status=queued",
        "older_than=0&status=completed&status=executing",
        "older_than=0&status=asleep",
        "older_than=0&staus=failed",
        "older_than=0&task_type=a+b",
        "older_than=%00",
    ],
)
async def test_what_is_not_clear_removes_nothing(
    bench: Bench, http: httpx.AsyncClient, replicated: Replication, query: str
) -> None:
    task_id = await ended(bench)

    assert_problem(await http.delete(f"/api/v1/tasks?{query}"), 400)

    assert await exists(http, task_id)


class TestPurgingOne:
    async def test_a_forgotten_task_is_removed_from_history(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        task_id = await ended(bench, "dead_letter")
        await replicated.forgotten(task_id)

        answer = await bench.call("DELETE", f"/api/v1/tasks/{task_id}?purge=true")

        assert answer == {"task_id": task_id, "purged": True}
        assert await rows_left(replicated, task_id) == 0
        assert_problem(await http.delete(f"/api/v1/tasks/{task_id}?purge=true"), 404, "task-not-found")

    async def test_a_purged_task_is_missing_at_once(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        """Although history hears of it a moment later."""
        for _ in range(10):
            task_id = await ended(bench, "cancelled")
            await replicated.done()

            await bench.call("DELETE", f"/api/v1/tasks/{task_id}?purge=true")

            assert not await exists(http, task_id)
            assert_problem(await http.post(f"/api/v1/tasks/{task_id}/retry"), 404, "task-not-found")
