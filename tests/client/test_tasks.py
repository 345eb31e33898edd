"""Tasks through the client, in both its forms, against a real service."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.api.bench import Bench
from tests.client.workshop import do_one, fail_one
from tideq.client import AsyncClient, Backoff, Conflict, IdempotencyConflict, InvalidRequest, NewTask, NotFound
from tideq.queue_core.task_id import TaskIds

NOBODY = "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5"


class TestSubmit:
    async def test_a_task_is_read_back_as_it_was_submitted(self, client: AsyncClient, task_type: str) -> None:
        run_at = datetime(2035, 1, 2, 3, 4, 5, tzinfo=UTC)

        submitted = await client.submit(
            task_type,
            {"width": 640},
            priority="high",
            required_capabilities=["gpu"],
            timeout_seconds=12.5,
            max_retries=7,
            run_at=run_at,
            idempotency_key=f"key {task_type} ✓",
            tags={"customer": "c-118"},
            backoff=Backoff(base_seconds=1, multiplier=3, cap_seconds=60),
            head_start_seconds=2.5,
            client_id="shop",
        )

        task = await client.get(submitted.task_id)
        assert (submitted.status, submitted.visible_at, submitted.durability) == ("queued", run_at, "store")
        assert (task.task_type, task.parameters, task.priority) == (task_type, {"width": 640}, "high")
        assert (task.required_capabilities, task.tags) == (("gpu",), {"customer": "c-118"})
        assert (task.timeout_seconds, task.max_retries, task.head_start_seconds) == (12.5, 7, 2.5)
        assert (task.run_at, task.visible_at) == (run_at, run_at)
        assert (task.idempotency_key, task.client_id) == (f"key {task_type} ✓", "shop")
        assert task.backoff == Backoff(base_seconds=1, multiplier=3, cap_seconds=60)
        assert (task.status, task.reason, task.is_done) == ("queued", "submitted", False)

    async def test_without_parameters_they_are_an_empty_object(self, client: AsyncClient, task_type: str) -> None:
        submitted = await client.submit(task_type)

        assert (await client.get(submitted.task_id)).parameters == {}

    @pytest.mark.parametrize(
        "value",
        [
            2**70,
            -(2**63) - 1,
            0.1,
            1e-7,
            Decimal("0.10000000000000000555"),
            Decimal("12345678901234567890.5"),
            "ünï ✓",
            None,
            [{"a": [True]}],
        ],
        ids=repr,
    )
    async def test_values_keep_their_digits(self, client: AsyncClient, task_type: str, value: Any) -> None:
        submitted = await client.submit(task_type, {"value": value})

        back = (await client.get(submitted.task_id)).parameters["value"]

        assert back == value
        assert type(back) is type(value)

    async def test_a_struct_can_be_the_parameters(self, client: AsyncClient, task_type: str) -> None:
        class Resize(msgspec.Struct):
            width: int

        submitted = await client.submit(task_type, Resize(640))

        assert (await client.get(submitted.task_id)).parameters == {"width": 640}

    async def test_each_submission_has_a_key_of_its_own(self, client: AsyncClient, task_type: str) -> None:
        submitted = [await client.submit(task_type) for _ in range(3)]

        keys = {(await client.get(each.task_id)).idempotency_key for each in submitted}

        assert len({each.task_id for each in submitted}) == 3
        assert len(keys) == 3
        assert None not in keys

    async def test_a_key_of_the_callers_stands_for_one_task(self, client: AsyncClient, task_type: str) -> None:
        first, again = [await client.submit(task_type, {"n": 1}, idempotency_key=task_type) for _ in range(2)]
        with pytest.raises(IdempotencyConflict) as refused:
            await client.submit(task_type, {"n": 2}, idempotency_key=task_type)

        assert again.task_id == first.task_id == refused.value.task_id

    async def test_a_wrong_value_is_pointed_at(self, client: AsyncClient, task_type: str) -> None:
        with pytest.raises(InvalidRequest) as refused:
            await client.submit(task_type, priority="urgent")

        assert [field.pointer for field in refused.value.fields] == ["/priority"]
        assert refused.value.problem.code == "unknown-priority"
        assert "urgent" in str(refused.value)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), [Decimal("NaN")]], ids=repr)
    async def test_what_json_cannot_say_is_refused_here(
        self, client: AsyncClient, task_type: str, value: object
    ) -> None:
        with pytest.raises(ValueError, match="NaN or infinity"):
            await client.submit(task_type, {"value": value, "other": None})

    async def test_an_instant_without_a_zone_is_refused(self, client: AsyncClient, task_type: str) -> None:
        with pytest.raises(ValueError, match="no time zone"):
            await client.submit(task_type, run_at=datetime(2035, 1, 1))


class TestSubmitMany:
    async def test_any_number_is_taken_in_the_order_given(self, client: AsyncClient, task_type: str) -> None:
        submitted = await client.submit_many(NewTask(task_type, {"n": n}) for n in range(2_345))

        ids = [each.task_id for each in submitted]
        some = [await client.get(ids[n]) for n in (0, 999, 1_000, 2_344)]
        assert len(set(ids)) == 2_345
        assert [task.parameters["n"] for task in some] == [0, 999, 1_000, 2_344]

    async def test_nothing_is_nothing(self, client: AsyncClient) -> None:
        assert await client.submit_many([]) == ()

    async def test_under_a_key_it_can_be_handed_in_again(self, client: AsyncClient, task_type: str) -> None:
        tasks = [NewTask(task_type, {"n": n}) for n in range(1_500)]

        first = await client.submit_many(tasks, idempotency_key=task_type)
        again = await client.submit_many(tasks, idempotency_key=task_type)

        assert [each.task_id for each in again] == [each.task_id for each in first]
        assert (await client.queue.stats()).queue.by_type[task_type] == 1_500

    async def test_a_wrong_task_is_pointed_at_by_its_place_and_what_stands_is_told(
        self, client: AsyncClient, task_type: str
    ) -> None:
        tasks = [NewTask(task_type, priority="urgent" if n == 1_234 else None) for n in range(1_500)]

        with pytest.raises(InvalidRequest) as refused:
            await client.submit_many(tasks)

        assert [field.pointer for field in refused.value.fields] == ["/tasks/1234/priority"]
        assert len(refused.value.submitted) == 1_000
        assert (await client.queue.stats()).queue.by_type[task_type] == 1_000

    async def test_large_payloads_are_cut_by_size(self, client: AsyncClient, task_type: str) -> None:
        text = "x" * 200_000

        submitted = await client.submit_many(NewTask(task_type, {"text": text}) for _ in range(100))

        assert len({each.task_id for each in submitted}) == 100
        for each in submitted:
            await client.cancel(each.task_id)

    async def test_a_known_id_is_answered_and_not_made_again(self, client: AsyncClient, task_type: str) -> None:
        own = TaskIds().new()

        (first,) = await client.submit_many([NewTask(task_type, {"n": 1}, task_id=own)])
        (again,) = await client.submit_many([NewTask(task_type, {"n": 2}, task_id=own)])

        assert (first.task_id, again.task_id) == (own, own)
        assert (await client.get(own)).parameters == {"n": 1}


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
        assert explanation.held_back_by

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


async def test_a_trace_goes_along_with_the_task(client: AsyncClient, task_type: str) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    with TracerProvider().get_tracer("test").start_as_current_span("request") as span:
        submitted = await client.submit(task_type)
        (one_of_many,) = await client.submit_many([NewTask(task_type)])

    trace_id = f"{span.get_span_context().trace_id:032x}"
    assert (await client.get(submitted.task_id)).trace_id == trace_id
    assert (await client.get(one_of_many.task_id)).trace_id == trace_id


async def test_one_client_serves_many_at_once(client: AsyncClient, task_type: str) -> None:
    async with asyncio.TaskGroup() as calls:
        pending = [calls.create_task(client.submit(task_type, {"n": n})) for n in range(50)]

    assert len({call.result().task_id for call in pending}) == 50
