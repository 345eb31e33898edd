"""Handing in tasks through the client, in both its forms, against a real service."""

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tideq.client import AsyncClient, Backoff, IdempotencyConflict, InvalidRequest, NewTask
from tideq.queue_core.task_id import TaskIds


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
            await client.submit(task_type, {"value": value})

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
