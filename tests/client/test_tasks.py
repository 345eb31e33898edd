"""Tasks through the client, in both its forms, against a real service."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.api.bench import Bench
from tests.client.workshop import do_one, fail_one, recorded
from tideq.client import AsyncClient, Conflict, NotFound

NOBODY = "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5"


class TestWait:
    async def test_a_finished_task_ends_the_wait(self, client: AsyncClient, workers: Bench, task_type: str) -> None:
        submitted = await client.submit(task_type)
        waiting = asyncio.create_task(client.wait(submitted.task_id))

        await do_one(workers, task_type, {"pages": 27, "ratio": 0.1})
        task = await waiting

        assert (task.status, task.has_succeeded) == ("completed", True)
        assert task.result == {"pages": 27, "ratio": 0.1}
        assert task.result_bytes == b'{"pages":27,"ratio":0.1}'
        assert task.result_as(dict[str, float]) == {"pages": 27.0, "ratio": 0.1}

    async def test_a_failed_one_says_why(self, client: AsyncClient, workers: Bench, task_type: str) -> None:
        submitted = await client.submit(task_type)
        await fail_one(workers, task_type, "no such page", code="E404", details={"url": "x"})

        task = await client.wait(submitted.task_id)

        assert (task.status, task.is_done, task.has_succeeded) == ("failed", True, False)
        assert task.error is not None
        assert (task.error.message, task.error.code, task.error.retriable) == ("no such page", "E404", False)
        assert task.error.details == {"url": "x"}
        assert task.errors == (task.error,)

    async def test_when_the_time_is_up_the_task_is_told_as_it_is(self, client: AsyncClient, task_type: str) -> None:
        submitted = await client.submit(task_type)

        task = await client.wait(submitted.task_id, timeout_seconds=0.3)

        assert (task.task_id, task.is_done) == (submitted.task_id, False)

    async def test_an_unknown_task_is_not_found(self, client: AsyncClient) -> None:
        with pytest.raises(NotFound):
            await client.wait(NOBODY, timeout_seconds=5)


class TestOneTask:
    async def test_its_history_is_told_where_it_is_asked_for(
        self, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        submitted = await client.submit(task_type)
        done = await do_one(workers, task_type)
        await recorded(client, submitted.task_id)

        plain, task = await client.get(submitted.task_id), await client.get(submitted.task_id, history=True)

        assert plain.state_history == ()
        assert [change.state for change in task.state_history] == ["queued", "assigned", "executing", "completed"]
        assert [change.version for change in task.state_history] == [1, 2, 3, 4]
        assert task.state_history[1].attempt == done["attempt"] == 1
        assert all(isinstance(change.at, datetime) for change in task.state_history)
        assert task.history_lag_seconds == 0

    async def test_cancelling_tells_whether_it_ran(self, client: AsyncClient, workers: Bench, task_type: str) -> None:
        waiting, running = await client.submit(task_type), await client.submit(task_type)
        cancelled = await client.cancel(waiting.task_id)
        worker_id = await workers.register(task_types=[task_type])
        await workers.started(worker_id)

        stopped = await client.cancel(running.task_id)

        assert (cancelled.was_executing, cancelled.worker_notified) == (False, False)
        assert (stopped.was_executing, stopped.worker_notified) == (True, True)
        with pytest.raises(Conflict) as refused:
            await client.cancel(running.task_id)
        assert (refused.value.state, refused.value.task_id) == ("cancelled", running.task_id)

    async def test_a_purged_task_is_gone(self, client: AsyncClient, task_type: str) -> None:
        task_id = (await client.submit(task_type)).task_id
        with pytest.raises(Conflict):
            await client.purge(task_id)
        await client.cancel(task_id)

        await client.purge(task_id)

        with pytest.raises(NotFound):
            await client.purge(task_id)

    async def test_a_retry_can_change_the_priority(self, client: AsyncClient, task_type: str) -> None:
        task_id = (await client.submit(task_type)).task_id
        await client.cancel(task_id)

        retried = await client.retry(task_id, new_priority="high")

        task = await client.get(task_id)
        assert (retried.status, retried.version) == ("queued", task.version)
        assert (task.status, task.reason, task.priority) == ("queued", "retried", "high")

    async def test_an_explanation_says_what_is_missing(self, client: AsyncClient, task_type: str) -> None:
        task_id = (await client.submit(task_type, required_capabilities=["gpu"])).task_id

        explanation = await client.explain(task_id)

        assert (explanation.status, explanation.queue_position, explanation.serving_workers) == ("queued", 0, 0)
        assert explanation.blocked_by

    @pytest.mark.parametrize("task_id", ["../queue/stats", "..", "a/b", "?x=1", "%2e%2e"])
    async def test_an_id_cannot_lead_elsewhere(self, client: AsyncClient, task_id: str) -> None:
        with pytest.raises(NotFound):
            await client.get(task_id)

    async def test_an_empty_id_is_refused_here(self, client: AsyncClient) -> None:
        for verb in (client.get, client.cancel, client.purge, client.retry, client.explain, client.wait):
            with pytest.raises(ValueError, match="task_id is empty"):
                await verb("")


class TestCleanUp:
    async def test_only_what_ended_before_goes(self, client: AsyncClient, task_type: str) -> None:
        ended, live = (await client.submit(task_type)).task_id, (await client.submit(task_type)).task_id
        await client.cancel(ended)

        too_young = await client.clean_up(timedelta(days=1), task_type=task_type)
        removed = await client.clean_up(datetime.now(UTC) + timedelta(hours=1), task_type=task_type)

        assert (too_young, removed) == (0, 1)
        assert (await client.get(live)).status == "queued"
        with pytest.raises(NotFound):
            await client.get(ended)

    async def test_other_states_stay(self, client: AsyncClient, task_type: str) -> None:
        task_id = (await client.submit(task_type)).task_id
        await client.cancel(task_id)

        removed = await client.clean_up(timedelta(0), status=["failed", "completed"], task_type=task_type)

        assert removed == 0
        assert (await client.get(task_id)).status == "cancelled"
