"""A tour of the queue. Read top to bottom: one idea a test, public verbs only."""

import pytest

from tests.kit import Kit
from tideq.queue_core.attempts import Extension, ProgressReport
from tideq.queue_core.errors import StaleLease, WrongState
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import NewTask


async def test_a_task_goes_from_queued_to_completed(kit: Kit) -> None:
    await kit.worker("w1")
    task_id = await kit.submit("resize", parameters=b'{"width":640}')

    claimed = await kit.claimed("w1")
    await kit.start(claimed)
    await kit.complete(claimed, result=b'{"url":"https://example.org/1"}')

    task = await kit.read(task_id)
    assert task.state is TaskState.COMPLETED
    assert task.result == b'{"url":"https://example.org/1"}'


async def test_urgent_work_goes_first_but_age_counts(kit: Kit) -> None:
    await kit.worker("w1")
    low = await kit.submit(priority="low")
    await kit.clock.advance(200_001 * 1000)
    high = await kit.submit(priority="high")
    medium = await kit.submit(priority="medium")

    claim = await kit.queue.claim("w1", 3)

    # Low work that has waited longer than its offset is not overtaken any more.
    assert [task.task_id for task in claim.tasks] == [low, high, medium]


async def test_a_claim_goes_out_with_the_tide_and_comes_back(kit: Kit) -> None:
    await kit.worker("w1")
    await kit.worker("w2")
    task_id = await kit.submit()
    await kit.claimed("w1")

    await kit.clock.advance(30_000)

    again = await kit.claimed("w2")
    assert again.task_id == task_id
    assert (await kit.read(task_id)).deliveries == 1


async def test_a_late_worker_is_told_that_its_lease_is_gone(kit: Kit) -> None:
    await kit.worker("w1")
    await kit.worker("w2")
    await kit.submit()
    late = await kit.claimed("w1")
    await kit.clock.advance(30_000)
    await kit.claimed("w2")

    with pytest.raises(StaleLease):
        await kit.start(late, "w1")


async def test_a_failure_waits_out_a_backoff_and_keeps_its_rank(kit: Kit) -> None:
    await kit.worker("w1")
    task_id = await kit.submit()
    rank = (await kit.read(task_id)).rank
    failed = await kit.started()

    assert await kit.fail(failed, jitter=0.0) == TaskState.QUEUED

    task = await kit.read(task_id)
    assert task.visible_at_ms == task.state_since_ms + 10_000
    assert (task.rank, task.retry_count) == (rank, 1)


async def test_spent_retries_make_a_dead_letter_that_can_be_replayed(kit: Kit) -> None:
    await kit.worker("w1")
    task_id = await kit.submit(max_retries=0)
    assert await kit.fail(await kit.started()) == TaskState.DEAD_LETTER

    await kit.queue.replay(task_id)

    task = await kit.read(task_id)
    assert (task.state, task.reason) == (TaskState.QUEUED, Reason.REPLAYED)
    assert (await kit.started()).attempt == 2


async def test_a_dead_workers_task_comes_back_and_costs_a_loss(kit: Kit) -> None:
    await kit.worker("w1")
    task_id = await kit.submit(timeout_ms=3_600_000)
    await kit.started("w1")

    await kit.clock.advance(90_000)
    await kit.queue.sweep()

    task = await kit.read(task_id)
    assert (task.state, task.reason, task.losses) == (TaskState.QUEUED, Reason.WORKER_LOST, 1)


async def test_a_cancelled_task_takes_no_result(kit: Kit) -> None:
    await kit.worker("w1")
    task_id = await kit.submit()
    held = await kit.started()
    await kit.queue.cancel(task_id)

    with pytest.raises(WrongState):
        await kit.complete(held)

    assert [stop.task_id for stop in (await kit.fleet.heartbeat("w1")).stops] == [task_id]


async def test_the_same_idempotency_key_makes_one_task(kit: Kit) -> None:
    first = await kit.submit(idempotency_key="order-17")

    assert await kit.submit(idempotency_key="order-17") == first


async def test_a_worker_takes_only_what_it_can_do(kit: Kit) -> None:
    await kit.worker("cpu", task_types=("train",))
    await kit.worker("gpu", task_types=("train",), capabilities=("gpu",))
    await kit.submit("train", required_capabilities=("gpu",))

    assert not (await kit.queue.claim("cpu")).tasks
    assert (await kit.queue.claim("gpu")).tasks


async def test_a_long_execution_reports_progress_and_asks_for_more_time(kit: Kit) -> None:
    await kit.worker("w1")
    task_id = await kit.submit(timeout_ms=60_000)
    held = await kit.started()

    await kit.attempts.progress("w1", [ProgressReport(held.task_id, held.lease, 1, 45.0, "half way")])
    await kit.attempts.extend("w1", [Extension(held.task_id, held.lease, 120_000)])

    task = await kit.read(task_id)
    assert task.progress is not None
    assert (task.progress.percent, task.progress.message) == (45.0, "half way")
    assert task.visible_at_ms is not None
    assert task.started_at_ms is not None
    assert task.visible_at_ms - task.started_at_ms >= 120_000


async def test_a_paused_type_is_not_handed_out(kit: Kit) -> None:
    await kit.worker("w1")
    await kit.submit("mail")
    await kit.controls.pause("mail", reason="provider is down")

    assert not (await kit.queue.claim("w1")).tasks

    await kit.controls.resume("mail")
    assert (await kit.queue.claim("w1")).tasks


async def test_ten_thousand_tasks_of_another_kind_do_not_stand_in_the_way(kit: Kit) -> None:
    await kit.worker("w1", task_types=("mail",))
    for _ in range(10):
        await kit.queue.submit_many([NewTask(task_type="crawl", priority="high") for _ in range(1_000)])
    mail = await kit.submit("mail", priority="low")

    assert (await kit.claimed("w1")).task_id == mail
