"""Looking without touching: statistics, explanations, reading."""

import pytest

from tests.contract.situations import NEVER_MADE_ID, complete_all, started_count, submit_count, task_in
from tests.kit import Kit
from tideq.queue_core.errors import TaskNotFound
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.states import TaskState

MINUTE_MS = 60_000


async def test_stats_of_an_empty_queue_are_all_zero(kit: Kit) -> None:
    stats = await kit.insight.stats()

    assert (stats.total_depth, stats.by_type, stats.by_priority, stats.recent) == (0, {}, {}, {})
    assert (stats.dead_letter_count, stats.outbox_length, stats.due_count, stats.age_ms(1.0)) == (0, 0, 0, 0)


async def test_stats_count_by_state_type_and_priority(kit: Kit) -> None:
    await kit.worker()
    await started_count(kit, 2)
    await submit_count(kit, 1)
    await kit.claimed()
    await submit_count(kit, 3, "crop", priority="high", required_capabilities=("gpu",))
    await submit_count(kit, 4, "crop", priority="low")
    await kit.submit("blur", delay_ms=1_000)

    stats = await kit.insight.stats()

    assert stats.by_state == {"queued": 8, "assigned": 1, "executing": 2}
    assert stats.by_type == {"crop": 7, "blur": 1}
    assert stats.by_priority == {"high": 3, "low": 4, "medium": 1}
    assert stats.total_depth == 8


async def test_stats_show_ages_to_the_minute(kit: Kit) -> None:
    await submit_count(kit, 1)
    await kit.clock.advance(60 * MINUTE_MS)
    await submit_count(kit, 8)
    await kit.clock.advance(10 * MINUTE_MS)
    await submit_count(kit, 1)

    stats = await kit.insight.stats()

    assert [round(stats.age_ms(share) / MINUTE_MS) for share in (0.5, 0.9, 1.0)] == pytest.approx([10, 10, 70], abs=1)
    assert stats.age_ms(0.05) <= MINUTE_MS


async def test_a_task_ages_from_when_it_may_run(kit: Kit) -> None:
    """Scheduled for tomorrow it is no old task, whatever was submitted since; tomorrow it is as old as its waiting."""
    await kit.submit(priority="high", delay_ms=60 * MINUTE_MS)
    await kit.submit()
    await kit.clock.advance(30 * MINUTE_MS)
    before = await kit.insight.stats()

    await kit.clock.advance(40 * MINUTE_MS)

    after = await kit.insight.stats()
    assert before.by_priority == after.by_priority == {"high": 1, "medium": 1}
    assert (before.age_ms(1.0, "high"), before.age_ms(0.5, "high")) == (0, 0)
    assert _minutes(before.age_ms(1.0, "medium")) == pytest.approx(30, abs=1)
    assert _minutes(before.age_ms(0.5)) == pytest.approx(30, abs=1)
    assert _minutes(after.age_ms(1.0, "high")) == pytest.approx(10, abs=1)
    assert _minutes(after.age_ms(1.0)) == pytest.approx(70, abs=1)


async def test_a_retry_ages_from_the_end_of_its_backoff(kit: Kit) -> None:
    hour_ms = 60 * MINUTE_MS
    await kit.worker()
    await kit.submit(backoff=Backoff(base_ms=hour_ms, cap_ms=hour_ms))
    await kit.fail(await kit.started())

    hidden = await kit.insight.stats()
    await kit.clock.advance(3 * hour_ms)
    waiting = await kit.insight.stats()
    await kit.fleet.heartbeat("w1")
    await kit.claimed()
    taken = await kit.insight.stats()

    assert (hidden.total_depth, hidden.age_ms(1.0)) == (1, 0)
    assert _minutes(waiting.age_ms(1.0)) == pytest.approx(120, abs=14)
    assert taken.ages == {}


async def test_one_old_task_among_many_young_is_the_oldest(kit: Kit) -> None:
    await kit.submit(priority="high")
    await kit.clock.advance(60 * MINUTE_MS)
    await submit_count(kit, 20, priority="high")
    await kit.submit(priority="low")

    stats = await kit.insight.stats()

    assert stats.age_ms(0.95, "high") <= MINUTE_MS
    assert _minutes(stats.age_ms(1.0, "high")) == pytest.approx(60, abs=1)
    assert stats.age_ms(1.0, "low") <= MINUTE_MS


def _minutes(age_ms: int) -> float:
    return age_ms / MINUTE_MS


async def test_stats_forget_the_age_of_what_no_longer_waits(kit: Kit) -> None:
    await submit_count(kit, 1)
    await kit.clock.advance(60 * MINUTE_MS)
    await kit.submit()
    await kit.worker()

    await kit.claimed()

    assert (await kit.insight.stats()).age_ms(1.0) <= MINUTE_MS


async def test_stats_count_outcomes_of_the_last_minute_only(kit: Kit) -> None:
    await kit.worker()
    await complete_all(kit, await started_count(kit, 3))
    await kit.fail((await started_count(kit, 1))[0])
    recent = (await kit.insight.stats()).recent

    await kit.clock.advance(2 * MINUTE_MS)

    assert (recent["completed"], recent["failed"], recent["retries"]) == (3, 1, 1)
    later = (await kit.insight.stats()).recent
    assert ("completed" in later, "failed" in later, later["retries"]) == (False, False, 1)


async def test_stats_count_what_is_due_and_what_died(kit: Kit) -> None:
    await kit.worker()
    await task_in(kit, TaskState.DEAD_LETTER)
    await kit.submit(delay_ms=1_000)
    await kit.clock.advance(1_000)

    stats = await kit.insight.stats()

    assert (stats.due_count, stats.dead_letter_count) == (1, 1)
    assert stats.outbox_length == await kit.client.xlen(kit.keys.key("outbox"))


# Explain


async def test_explain_tells_the_place_in_the_lane_and_among_all(kit: Kit) -> None:
    await submit_count(kit, 3, "crop", priority="high")
    await submit_count(kit, 5, "crop", priority="low")
    await submit_count(kit, 2)
    await kit.clock.advance(1)
    task_id = await kit.submit()

    explanation = await kit.insight.explain(task_id)

    assert (explanation.lane, explanation.lane_position, explanation.global_position) == ("resize|", 2, 5)
    assert (explanation.state, explanation.visible_at_ms, explanation.allowed_now) == (TaskState.QUEUED, None, None)


async def test_explain_of_a_hidden_task_tells_when_it_can_start(kit: Kit) -> None:
    task_id = await kit.submit(delay_ms=5_000)

    explanation = await kit.insight.explain(task_id)

    assert explanation.visible_at_ms == (await kit.read(task_id)).eligible_at_ms
    assert (explanation.lane_position, explanation.global_position) == (None, None)


async def test_explain_of_a_task_that_waits_out_a_backoff_tells_the_reason(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.fail(started, jitter=0.0)

    explanation = await kit.insight.explain(started.task_id)

    assert explanation.reason == "error"
    assert explanation.visible_at_ms == (await kit.read(started.task_id)).visible_at_ms


async def test_explain_counts_only_active_workers_that_could_take_it(kit: Kit) -> None:
    task_id = await kit.submit(required_capabilities=("gpu",))
    nobody = await kit.insight.explain(task_id)
    await kit.worker("no-gpu")
    await kit.worker("other-type", task_types=("crop",), capabilities=("gpu",))
    await kit.worker("fit", task_types=("resize",), capabilities=("gpu", "avx"))
    await kit.worker("any", capabilities=("gpu",))
    await kit.worker("sick", capabilities=("gpu",))
    await kit.fleet.set_health("sick", is_healthy=False)

    explanation = await kit.insight.explain(task_id)

    assert (nobody.serving_worker_count, explanation.serving_worker_count) == (0, 2)


async def test_explain_does_not_count_workers_that_fell_silent(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.worker()
    await kit.clock.advance(90_000)

    assert (await kit.insight.explain(task_id)).serving_worker_count == 0


async def test_explain_of_a_paused_type_tells_the_pause(kit: Kit) -> None:
    task_id = await kit.submit()
    now_ms = (await kit.insight.stats()).now_ms
    await kit.controls.pause("resize", by="anna", reason="repairs", resume_at_ms=now_ms + 5_000)

    explanation = await kit.insight.explain(task_id)

    assert explanation.type_control.pause is not None
    assert explanation.type_control.pause.reason == "repairs"
    assert (explanation.allowed_now, explanation.allowed_at_ms) == (0, now_ms + 5_000)
    assert explanation.queue_control.pause is None


async def test_explain_of_a_paused_queue_tells_the_pause(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.controls.pause(reason="night")

    explanation = await kit.insight.explain(task_id)

    assert explanation.queue_control.pause is not None
    assert (explanation.allowed_now, explanation.allowed_at_ms) == (0, None)


async def test_explain_of_a_limited_type_tells_how_many_may_go_and_when_the_next(kit: Kit) -> None:
    task_ids = await submit_count(kit, 3)
    await kit.worker()
    await kit.controls.limit("resize", tasks_per_second=0.1, max_executing=9)
    free = await kit.insight.explain(task_ids[-1])
    claim = await kit.queue.claim("w1")

    spent = await kit.insight.explain(task_ids[-1])

    assert (free.allowed_now, spent.allowed_now) == (1, 0)
    assert spent.allowed_at_ms == claim.now_ms + 10_000
    assert (spent.type_control.limits.tasks_per_second, spent.type_control.limits.max_executing) == (0.1, 9)


async def test_explain_of_an_unknown_task_is_refused(kit: Kit) -> None:
    with pytest.raises(TaskNotFound) as refusal:
        await kit.insight.explain(NEVER_MADE_ID)

    assert refusal.value.task_id == NEVER_MADE_ID


# Reading


async def test_read_of_an_unknown_task_is_refused(kit: Kit) -> None:
    with pytest.raises(TaskNotFound):
        await kit.read(NEVER_MADE_ID)


async def test_read_many_answers_in_the_order_asked(kit: Kit) -> None:
    first, second = await submit_count(kit, 2)

    found = await kit.queue.read_many([second, NEVER_MADE_ID, first])

    assert [task and task.task_id for task in found] == [second, None, first]


async def test_looking_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.submit(delay_ms=1)
    await kit.clock.advance(1_000_000)
    before = await kit.dump()

    await kit.insight.stats()
    await kit.insight.explain(started.task_id)
    await kit.insight.snapshot()
    await kit.read(started.task_id)

    assert await kit.dump() == before


async def test_backlog_counts_what_is_ready_and_what_is_held_and_not_what_is_hidden(kit: Kit) -> None:
    await kit.worker()
    await started_count(kit, 2)
    await submit_count(kit, 1)
    await kit.claimed()
    await submit_count(kit, 5)
    await submit_count(kit, 3, "crop", required_capabilities=("gpu",))
    await kit.submit("blur", delay_ms=1_000)

    backlog = await kit.insight.backlog()

    assert (backlog.ready, backlog.held) == (8, 3)


async def test_backlog_of_a_worker_counts_only_the_lanes_it_serves(kit: Kit) -> None:
    await kit.worker()
    await started_count(kit, 2)
    await submit_count(kit, 4, "crop")
    await submit_count(kit, 3, "crop", required_capabilities=("gpu",))
    await submit_count(kit, 1, "blur")

    async def seen(*task_types: str, having: tuple[str, ...] = ()) -> tuple[int, int]:
        backlog = await kit.insight.backlog(task_types, having)
        return backlog.ready, backlog.held

    assert await seen("crop") == (4, 0)
    assert await seen("crop", having=("gpu",)) == (7, 0)
    assert await seen("crop", "resize") == (4, 2)
    assert await seen("nothing") == (0, 0)
    assert await seen(having=("gpu",)) == (8, 2)
