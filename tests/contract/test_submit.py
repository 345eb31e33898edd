"""submit: new task -> queued."""

import time
import uuid
from typing import Any

import pytest

from tests.contract.situations import NEVER_MADE_ID, claimed_ids, events, submit_count
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.queue_core.engine import assemble_engine
from tideq.queue_core.errors import IdempotencyConflict, InvalidTask, RankOutOfRange
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask, TraceContext

DAY_MS = 86_400_000


async def test_submit_makes_a_queued_task_that_is_first_in_its_lane(kit: Kit) -> None:
    task_id = await kit.submit("resize", parameters=b'{"width":640}')

    task = await kit.read(task_id)
    assert task.state is TaskState.QUEUED
    assert task.definition.parameters == b'{"width":640}'
    assert (task.version, task.lane_position) == (1, 0)


async def test_submit_answers_with_rank_and_place(kit: Kit) -> None:
    await kit.submit()

    second = await kit.queue.submit(NewTask(task_type="resize"))

    assert second.is_new
    assert (second.rank, second.lane_position) == (second.now_ms + 100_000_000, 1)
    assert second.visible_at_ms is None


@pytest.mark.parametrize("days", [-100, 100])
async def test_ids_are_of_the_stores_time_whatever_the_process_takes_it_for(
    kit: Kit, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """History keeps and drops tasks by their ids."""
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + days * DAY_MS * 1_000_000)
    begun = assemble_engine(kit.client, kit.settings, sends_flags=store.sends_flags)
    for part, known in zip(begun.parts, kit.engine.parts, strict=True):
        part.scripts.epoch = known.scripts.epoch

    first = await begun.queue.submit(NewTask(task_type="resize"))
    await kit.clock.advance(10 * DAY_MS)
    moved = [await begun.queue.submit(NewTask(task_type="resize")) for _ in range(2)][1]

    for submitted in (first, moved):
        assert abs(_instant_of(submitted.task_id) - submitted.now_ms) < 60_000


def _instant_of(task_id: str) -> int:
    return uuid.UUID(task_id).int >> 80


@pytest.mark.parametrize(
    ("priority", "offset_ms", "max_retries", "timeout_ms"),
    [("high", 0, 5, 300_000), ("medium", 100_000_000, 3, 600_000), ("low", 200_000_000, 2, 900_000)],
)
async def test_submit_with_a_priority_takes_its_defaults(
    kit: Kit, priority: str, offset_ms: int, max_retries: int, timeout_ms: int
) -> None:
    task = await kit.read(await kit.submit(priority=priority))

    assert task.rank == task.created_at_ms + offset_ms
    assert (task.priority, task.max_retries, task.timeout_ms) == (priority, max_retries, timeout_ms)


async def test_submit_without_a_priority_is_medium(kit: Kit) -> None:
    task = await kit.read(await kit.submit())

    assert task.priority == "medium"


async def test_submit_with_own_limits_overrides_the_priority(kit: Kit) -> None:
    task = await kit.read(await kit.submit(priority="high", max_retries=0, timeout_ms=1_234))

    assert (task.max_retries, task.timeout_ms) == (0, 1_234)


async def test_submit_with_a_head_start_ranks_earlier_by_it(kit: Kit) -> None:
    task = await kit.read(await kit.submit(head_start_ms=5_000))

    assert task.rank == task.created_at_ms + 100_000_000 - 5_000


async def test_submit_keeps_parameters_as_the_bytes_that_came(kit: Kit) -> None:
    parameters = b'{"n": 12345678901234567890, "empty": [], "odd": "|\n\xff\x00 {}"}'

    task_id = await kit.submit(parameters=parameters)

    assert (await kit.read(task_id)).definition.parameters == parameters


async def test_submit_keeps_all_that_describes_the_task(kit: Kit) -> None:
    trace = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=1", "user=7")
    backoff = Backoff(base_ms=1, multiplier=1.5, cap_ms=9)

    task_id = await kit.submit(
        required_capabilities=("gpu", "cuda", "gpu"),
        tags={"team": "imaging"},
        trace=trace,
        backoff=backoff,
        client_id="shop",
        idempotency_key="k",
    )

    kept = (await kit.read(task_id)).definition
    assert kept.required_capabilities == ("cuda", "gpu")
    assert (kept.tags, kept.trace, kept.backoff) == ({"team": "imaging"}, trace, backoff)
    assert (kept.client_id, kept.idempotency_key) == ("shop", "k")


async def test_submit_many_makes_all_in_their_order(kit: Kit) -> None:
    task_ids = await submit_count(kit, 1_000)

    await kit.worker()
    assert len(set(task_ids)) == 1_000
    assert await claimed_ids(kit) == task_ids


async def test_submit_many_tells_history_of_each_task_once(kit: Kit) -> None:
    task_ids = await submit_count(kit, 20)

    told = await events(kit)
    assert [event.task_id for event in told] == task_ids
    assert {(event.state, event.reason, event.record.text("version")) for event in told} == {
        ("queued", "submitted", "1")
    }


async def test_submit_many_with_one_bad_task_takes_none(kit: Kit) -> None:
    before = await kit.dump()

    with pytest.raises(InvalidTask):
        await kit.queue.submit_many([NewTask(task_type="fine"), NewTask(task_type="not fine")])

    assert await kit.dump() == before


async def test_submit_many_with_one_rank_out_of_range_takes_none(kit: Kit) -> None:
    before = await kit.dump()

    with pytest.raises(RankOutOfRange):
        await kit.queue.submit_many([NewTask(task_type="fine"), NewTask(task_type="late", run_at_ms=2**42 - 1)])

    assert await kit.dump() == before


# Later


async def test_submit_with_a_delay_hides_the_task_until_then(kit: Kit) -> None:
    submitted = await kit.queue.submit(NewTask(task_type="resize", delay_ms=60_000))

    task = await kit.read(submitted.task_id)
    assert submitted.visible_at_ms == task.visible_at_ms == task.eligible_at_ms == submitted.now_ms + 60_000
    assert submitted.rank == task.rank == submitted.now_ms + 60_000 + 100_000_000
    assert (task.state, task.lane_position) == (TaskState.QUEUED, None)


async def test_submit_with_a_delay_can_be_claimed_only_after_it(kit: Kit) -> None:
    task_id = await kit.submit(delay_ms=60_000)
    await kit.worker(task_types=("resize",))

    await kit.clock.advance(59_000)
    early = await claimed_ids(kit)
    await kit.clock.advance(1_000)
    due = await claimed_ids(kit)

    assert (early, due) == ([], [task_id])


async def test_submit_with_run_at_in_the_future_ranks_from_then(kit: Kit) -> None:
    now_ms = (await kit.insight.stats()).now_ms

    task = await kit.read(await kit.submit(run_at_ms=now_ms + 3_600_000))

    assert task.eligible_at_ms == task.visible_at_ms == now_ms + 3_600_000
    assert task.rank == now_ms + 3_600_000 + 100_000_000


async def test_submit_with_run_at_in_the_past_ranks_as_submitted_now(kit: Kit) -> None:
    task = await kit.read(await kit.submit(run_at_ms=1_000))

    assert task.eligible_at_ms == task.created_at_ms
    assert (task.visible_at_ms, task.rank) == (None, task.created_at_ms + 100_000_000)


async def test_submit_with_a_delay_of_zero_is_ready_at_once(kit: Kit) -> None:
    task = await kit.read(await kit.submit(delay_ms=0))

    assert (task.visible_at_ms, task.lane_position) == (None, 0)


# Idempotency keys


async def test_submit_with_a_known_key_and_body_answers_with_the_same_task(kit: Kit) -> None:
    first = await kit.queue.submit(NewTask(task_type="resize", idempotency_key="order-7"))
    before = await kit.dump()

    again = await kit.queue.submit(NewTask(task_type="resize", idempotency_key="order-7"))

    assert (first.is_new, again.is_new) == (True, False)
    assert again.task_id == first.task_id
    assert await kit.dump() == before


@pytest.mark.parametrize(
    "other",
    [
        {"parameters": b"{ }"},
        {"task_type": "crop"},
        {"priority": "high"},
        {"delay_ms": 1},
        {"max_retries": 1},
        {"tags": {"a": "b"}},
        {"required_capabilities": ("gpu",)},
        {"head_start_ms": 1},
        {"backoff": Backoff()},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_submit_with_a_known_key_and_another_body_is_refused(kit: Kit, other: dict[str, Any]) -> None:
    task_id = await kit.submit(idempotency_key="order-7")
    before = await kit.dump()

    with pytest.raises(IdempotencyConflict) as refusal:
        await kit.submit(**{"task_type": "resize", "idempotency_key": "order-7", **other})

    assert refusal.value.task_id == task_id
    assert await kit.dump() == before


async def test_submit_with_a_known_key_in_another_trace_is_the_same_task(kit: Kit) -> None:
    task_id = await kit.submit(idempotency_key="order-7")

    assert await kit.submit(idempotency_key="order-7", trace=TraceContext("00-other")) == task_id


async def test_submit_with_the_key_of_another_client_is_a_new_task(kit: Kit) -> None:
    task_id = await kit.submit(idempotency_key="order-7", client_id="shop")

    assert await kit.submit(idempotency_key="order-7", client_id="office") != task_id


async def test_submit_with_the_key_of_a_finished_task_answers_with_that_task(kit: Kit) -> None:
    task_id = await kit.submit(idempotency_key="order-7")
    await kit.worker()
    await kit.complete(await kit.started())

    again = await kit.queue.submit(NewTask(task_type="resize", idempotency_key="order-7"))

    assert (again.task_id, again.is_new) == (task_id, False)


async def test_submit_with_a_key_almost_a_day_old_is_the_same_task(kit: Kit) -> None:
    task_id = await kit.submit(idempotency_key="order-7")

    await kit.clock.advance(DAY_MS - 1_000)

    assert await kit.submit(idempotency_key="order-7") == task_id


async def test_submit_with_a_key_more_than_a_day_old_is_a_new_task(kit: Kit) -> None:
    task_id = await kit.submit(idempotency_key="order-7")

    await kit.clock.advance(DAY_MS)
    second = await kit.submit(idempotency_key="order-7", parameters=b"[]")

    assert second != task_id
    assert await kit.submit(idempotency_key="order-7", parameters=b"[]") == second


async def test_submit_many_with_one_key_twice_makes_one_task(kit: Kit) -> None:
    first, second = await kit.queue.submit_many([NewTask(task_type="resize", idempotency_key="order-7")] * 2)

    assert (first.is_new, second.is_new) == (True, False)
    assert first.task_id == second.task_id
    assert len(await events(kit)) == 1


async def test_submit_many_with_one_key_for_two_bodies_takes_none(kit: Kit) -> None:
    before = await kit.dump()

    with pytest.raises(IdempotencyConflict):
        await kit.queue.submit_many(
            [
                NewTask(task_type="resize"),
                NewTask(task_type="resize", idempotency_key="order-7"),
                NewTask(task_type="crop", idempotency_key="order-7"),
            ]
        )

    assert await kit.dump() == before


# Ids of the caller's own


async def test_submit_with_an_own_id_uses_it(kit: Kit) -> None:
    assert await kit.submit(task_id=NEVER_MADE_ID) == NEVER_MADE_ID


async def test_submit_with_a_known_id_changes_nothing(kit: Kit) -> None:
    await kit.submit(task_id=NEVER_MADE_ID)
    before = await kit.dump()

    again = await kit.queue.submit(NewTask(task_type="crop", task_id=NEVER_MADE_ID))

    assert (again.task_id, again.is_new) == (NEVER_MADE_ID, False)
    assert await kit.dump() == before


async def test_submit_many_with_one_id_twice_makes_one_task(kit: Kit) -> None:
    first, second = await kit.queue.submit_many([NewTask(task_type="resize", task_id=NEVER_MADE_ID)] * 2)

    assert (first.is_new, second.is_new) == (True, False)
    assert (await kit.insight.stats()).total_depth == 1


async def test_submit_many_of_known_and_new_makes_only_the_new(kit: Kit) -> None:
    known = await kit.submit(idempotency_key="order-7")

    answers = await kit.queue.submit_many(
        [
            NewTask(task_type="resize", idempotency_key="order-7"),
            NewTask(task_type="resize"),
        ]
    )

    assert [answer.is_new for answer in answers] == [False, True]
    assert answers[0].task_id == known
    assert (await kit.insight.stats()).total_depth == 2


async def test_submit_again_with_tags_and_capabilities_in_another_order_is_the_same_submission(kit: Kit) -> None:
    first = await kit.submit(idempotency_key="k", tags={"a": "1", "b": "2"}, required_capabilities=("gpu", "ssd"))

    again = await kit.submit(idempotency_key="k", tags={"b": "2", "a": "1"}, required_capabilities=("ssd", "gpu"))

    assert again == first


async def test_submit_many_of_all_sorts_tells_of_each_what_it_came_to(kit: Kit) -> None:
    """Most of a batch is not told of by the store: it is reckoned, and must be what reading shows."""
    known = await kit.submit(idempotency_key="order-7")
    await kit.submit("crop")
    sorts = [
        NewTask(task_type="resize"),
        NewTask(task_type="crop", priority="high"),
        NewTask(task_type="resize", delay_ms=5_000),
        NewTask(task_type="resize"),
        NewTask(task_type="resize", idempotency_key="order-7"),
        NewTask(task_type="crop", priority="high"),
        NewTask(task_type="resize", idempotency_key="order-8"),
        NewTask(task_type="resize", priority="low", head_start_ms=1_000),
        NewTask(task_type="resize"),
    ]

    answers = await kit.queue.submit_many(sorts, include_position=True)

    found = [await kit.read(answer.task_id) for answer in answers]
    assert [answer.is_new for answer in answers] == [number != 4 for number in range(len(sorts))]
    assert answers[4].task_id == known
    for answer, task in zip(answers, found, strict=True):
        if answer.is_new:
            told = (answer.rank, answer.visible_at_ms, answer.lane_position)
            assert told == (task.rank, task.visible_at_ms, task.lane_position)
    assert [task.definition.task_type for task in found] == [sort.task_type for sort in sorts]
