"""The queue as a whole and the fleet through the client, in both its forms."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.api.bench import Bench
from tideq.client import AsyncClient, Limit, NotFound, UnknownWorker


async def limit_of(client: AsyncClient, task_type: str) -> Limit | None:
    return next((limit for limit in await client.queue.limits() if limit.task_type == task_type), None)


async def test_statistics_count_what_waits(client: AsyncClient, task_type: str) -> None:
    for priority in ("high", "high", "low"):
        await client.submit(task_type, priority=priority)

    stats = await client.queue.stats()

    assert stats.queue.by_type[task_type] == 3
    assert stats.queue.total_depth >= 3
    assert {"high", "low"} <= stats.queue.by_priority.keys()
    assert stats.throughput.completed_last_minute >= 0


async def test_a_paused_type_is_not_handed_out_until_it_resumes(
    client: AsyncClient, workers: Bench, task_type: str
) -> None:
    await client.submit(task_type)
    worker_id = await workers.register(task_types=[task_type])

    await client.queue.pause(task_type, reason="upstream is down", resume_at=datetime.now(UTC) + timedelta(hours=1))
    paused, blocked_types = await limit_of(client, task_type), await workers.poll(worker_id)
    await client.queue.resume(task_type)

    assert paused is not None
    assert (paused.paused, paused.reason) == (True, "upstream is down")
    assert paused.resume_at is not None
    assert blocked_types["tasks"] == []
    assert len((await workers.poll(worker_id))["tasks"]) == 1


async def test_limits_are_set_and_lifted(client: AsyncClient, task_type: str) -> None:
    await client.queue.set_limits(task_type, tasks_per_second=2.5, max_executing=3)
    limited = await limit_of(client, task_type)

    await client.queue.set_limits(task_type)

    assert limited is not None
    assert (limited.tasks_per_second, limited.max_executing) == (2.5, 3)
    lifted = await limit_of(client, task_type)
    assert lifted is None or (lifted.tasks_per_second, lifted.max_executing) == (0, None)


async def test_the_fleet_is_listed_and_a_worker_sent_home(client: AsyncClient, workers: Bench, task_type: str) -> None:
    ids = {await workers.register(task_types=[task_type], name="w", capacity=3) for _ in range(5)}

    active = [
        worker async for worker in client.workers.list("active", page_size=2) if worker.task_types == (task_type,)
    ]
    drained = await client.workers.drain(active[0].worker_id)
    draining = [worker.worker_id async for worker in client.workers.list(["draining", "dead"])]

    assert {worker.worker_id for worker in active} == ids
    assert {(worker.capacity, worker.held, worker.status) for worker in active} == {(3, 0, "active")}
    assert (drained.worker_id, drained.status) == (active[0].worker_id, "draining")
    assert active[0].worker_id in draining


async def test_a_worker_is_shown_with_what_it_says_and_holds(
    client: AsyncClient, workers: Bench, task_type: str
) -> None:
    worker_id = await workers.register(task_types=[task_type])
    task_id = (await client.submit(task_type)).task_id
    await workers.started(worker_id)
    said = {"status": "unhealthy", "current_load": 1}
    await workers.call("POST", f"/internal/workers/{worker_id}/heartbeat", said)

    worker = await client.workers.get(worker_id)

    (listed,) = [each async for each in client.workers.list("unhealthy") if each.worker_id == worker_id]
    for each in (worker, listed):
        assert (each.status, each.reason, each.current_load) == ("unhealthy", "unhealthy_by_itself", 1)
        assert (each.current_tasks, each.health_failures) == ((task_id,), 0)
        assert each.since is not None
        assert each.reason_detail
    await workers.call("DELETE", f"/internal/workers/{worker_id}")


@pytest.mark.parametrize("verb", ["drain", "get"])
async def test_an_unknown_worker_is_not_found(client: AsyncClient, verb: str) -> None:
    with pytest.raises(UnknownWorker) as refused:
        await getattr(client.workers, verb)("nobody")

    assert isinstance(refused.value, NotFound)
