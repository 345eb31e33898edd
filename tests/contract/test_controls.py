"""Pauses and limits, for the whole queue and for one task type."""

import pytest

from tests.contract.situations import claimed_ids, complete_all, held, started_count, submit_count
from tests.kit import Kit
from tideq.queue_core.controls import Control, Limits, Pause
from tideq.queue_core.errors import InvalidRequest

SCOPES = pytest.mark.parametrize("scope", [None, "resize"], ids=["whole-queue", "one-type"])


# Pauses


@SCOPES
async def test_pause_hands_out_nothing_until_resumed(kit: Kit, scope: str | None) -> None:
    task_id = await kit.submit()
    await kit.worker()
    await kit.controls.pause(scope)

    paused = await claimed_ids(kit)
    await kit.controls.resume(scope)
    resumed = await claimed_ids(kit)

    assert (paused, resumed) == ([], [task_id])


async def test_pause_of_one_type_leaves_the_others(kit: Kit) -> None:
    await kit.submit("resize", priority="high")
    crop = await kit.submit("crop")
    await kit.worker()

    await kit.controls.pause("resize")

    assert await claimed_ids(kit) == [crop]


async def test_pause_of_one_type_holds_in_all_its_lanes(kit: Kit) -> None:
    await kit.submit("resize")
    await kit.submit("resize", required_capabilities=("gpu",))
    await kit.worker(capabilities=("gpu",))

    await kit.controls.pause("resize")

    assert await claimed_ids(kit) == []


async def test_pause_leaves_what_is_assigned_or_executing_alone(kit: Kit) -> None:
    await kit.worker()
    started = await started_count(kit, 1)
    await kit.submit()
    claimed = await kit.claimed()

    await kit.controls.pause()

    await kit.start(claimed)
    await complete_all(kit, [*started, claimed])


async def test_pause_does_not_stop_submissions(kit: Kit) -> None:
    await kit.controls.pause()

    assert await kit.submit()


@SCOPES
async def test_pause_with_an_end_resumes_by_itself(kit: Kit, scope: str | None) -> None:
    task_id = await kit.submit()
    await kit.worker()
    resume_at_ms = (await kit.insight.stats()).now_ms + 60_000
    await kit.controls.pause(scope, resume_at_ms=resume_at_ms)

    paused = await kit.queue.claim("w1")
    await kit.clock.advance(60_000)

    assert (paused.tasks, paused.retry_at_ms) == ((), resume_at_ms)
    assert await claimed_ids(kit) == [task_id]


async def test_pause_is_shown_with_who_and_why(kit: Kit) -> None:
    await kit.controls.pause("resize", by="an|na", reason="dis|k full", resume_at_ms=7)

    controls = (await kit.insight.stats()).controls
    assert controls == {"resize": Control("resize", Pause(7, "an na", "dis|k full"), Limits())}


async def test_pause_twice_keeps_the_later_one(kit: Kit) -> None:
    await kit.controls.pause("resize", reason="first")
    await kit.controls.pause("resize", reason="second")

    pause = (await kit.insight.stats()).controls["resize"].pause
    assert pause is not None
    assert pause.reason == "second"


# Rates


@SCOPES
async def test_rate_lets_out_one_seconds_worth_at_once(kit: Kit, scope: str | None) -> None:
    task_ids = await submit_count(kit, 20)
    await kit.worker()
    await kit.controls.limit(scope, tasks_per_second=5)

    assert await claimed_ids(kit) == task_ids[:5]


@SCOPES
async def test_rate_refills_as_time_passes_and_never_beyond_a_second(kit: Kit, scope: str | None) -> None:
    await submit_count(kit, 30)
    await kit.worker()
    await kit.controls.limit(scope, tasks_per_second=0.1)
    counts = [len(await claimed_ids(kit))]

    for seconds in (5, 5, 10, 600):
        await kit.clock.advance(seconds * 1_000)
        await kit.fleet.heartbeat("w1")
        counts.append(len(await claimed_ids(kit)))

    assert counts[:4] == [1, 0, 1, 1]
    assert counts[4] == 1


async def test_rate_of_one_type_leaves_the_others(kit: Kit) -> None:
    await submit_count(kit, 10, "resize")
    await submit_count(kit, 10, "crop")
    await kit.worker()

    await kit.controls.limit("resize", tasks_per_second=2)

    claim = await kit.queue.claim("w1", 100)
    types = [task.definition.task_type for task in claim.tasks]
    assert (types.count("resize"), types.count("crop")) == (2, 10)


async def test_rate_of_one_type_is_shared_by_all_its_lanes(kit: Kit) -> None:
    await submit_count(kit, 5)
    await submit_count(kit, 5, required_capabilities=("gpu",))
    await kit.worker(capabilities=("gpu",))

    await kit.controls.limit("resize", tasks_per_second=3)

    assert len(await claimed_ids(kit)) == 3


async def test_rate_of_the_whole_queue_is_shared_by_all_types(kit: Kit) -> None:
    await submit_count(kit, 5, "resize")
    await submit_count(kit, 5, "crop")
    await kit.worker()

    await kit.controls.limit(tasks_per_second=3)

    assert len(await claimed_ids(kit)) == 3


@SCOPES
async def test_rate_token_comes_back_with_a_released_claim(kit: Kit, scope: str | None) -> None:
    await submit_count(kit, 5)
    await kit.worker()
    await kit.controls.limit(scope, tasks_per_second=0.01)
    claimed = await kit.claimed()
    spent = await claimed_ids(kit)

    await kit.attempts.release("w1", held(claimed))

    assert spent == []
    assert await claimed_ids(kit) == [claimed.task_id]


@SCOPES
async def test_rate_token_comes_back_with_a_lapsed_claim(kit: Kit, scope: str | None) -> None:
    await submit_count(kit, 5)
    await kit.worker()
    await kit.controls.limit(scope, tasks_per_second=0.001)
    claimed = await kit.claimed()
    await kit.clock.advance(30_000)

    again = await claimed_ids(kit)

    assert again == [claimed.task_id]


async def test_rate_token_comes_back_with_a_withdrawn_answer(kit: Kit) -> None:
    await submit_count(kit, 5)
    await kit.worker()
    await kit.controls.limit("resize", tasks_per_second=0.01)
    claim = await kit.queue.claim("w1", 5, poll_id="p")

    await kit.queue.undo_claim("w1", "p", claim.answer)

    assert await claimed_ids(kit) == [task.task_id for task in claim.tasks]


async def test_rate_token_stays_spent_when_the_task_completes(kit: Kit) -> None:
    await submit_count(kit, 5)
    await kit.worker()
    await kit.controls.limit("resize", tasks_per_second=0.01)

    await kit.complete(await kit.started())

    assert await claimed_ids(kit) == []


async def test_rate_never_holds_more_than_its_bucket_however_much_is_given_back(kit: Kit) -> None:
    await submit_count(kit, 20)
    await kit.worker()
    claim = await kit.queue.claim("w1", 10)
    await kit.controls.limit("resize", tasks_per_second=2)

    await kit.attempts.release("w1", held(*claim.tasks))

    assert len(await claimed_ids(kit)) == 2


async def test_rate_lifted_lets_everything_out(kit: Kit) -> None:
    await submit_count(kit, 5)
    await kit.worker()
    await kit.controls.limit("resize", tasks_per_second=0.01)
    await claimed_ids(kit)

    await kit.controls.limit("resize", tasks_per_second=0)

    assert len(await claimed_ids(kit)) == 4


# Most at once


@SCOPES
async def test_most_at_once_counts_what_is_assigned_and_executing(kit: Kit, scope: str | None) -> None:
    await kit.worker()
    await kit.controls.limit(scope, max_executing=3)
    await started_count(kit, 2)
    await submit_count(kit, 5)

    first = await claimed_ids(kit)
    second = await claimed_ids(kit)

    assert (len(first), second) == (1, [])


@SCOPES
@pytest.mark.parametrize("word", ["complete", "fail", "release", "cancel", "lapse"])
async def test_most_at_once_frees_a_slot_however_a_task_leaves_it(kit: Kit, scope: str | None, word: str) -> None:
    await kit.worker()
    await submit_count(kit, 3)
    await kit.controls.limit(scope, max_executing=1)
    task = await kit.claimed()
    full = await claimed_ids(kit)

    match word:
        case "release":
            await kit.attempts.release("w1", held(task))
        case "cancel":
            await kit.queue.cancel(task.task_id)
        case "lapse":
            await kit.clock.advance(30_000)
        case _:
            await kit.start(task)
            await getattr(kit, word)(task)

    assert full == []
    assert len(await claimed_ids(kit)) == 1


async def test_most_at_once_of_one_type_is_shared_by_all_its_lanes(kit: Kit) -> None:
    await submit_count(kit, 5)
    await submit_count(kit, 5, required_capabilities=("gpu",))
    await submit_count(kit, 5, "crop")
    await kit.worker(capabilities=("gpu",))

    await kit.controls.limit("resize", max_executing=3)

    types = [task.definition.task_type for task in (await kit.queue.claim("w1", 100)).tasks]
    assert (types.count("resize"), types.count("crop")) == (3, 5)


async def test_most_at_once_counts_what_runs_in_other_lanes_of_the_type(kit: Kit) -> None:
    await kit.worker(capabilities=("gpu",))
    await submit_count(kit, 2, required_capabilities=("gpu",))
    assert len(await claimed_ids(kit)) == 2
    await submit_count(kit, 5)

    await kit.controls.limit("resize", max_executing=3)

    assert len(await claimed_ids(kit)) == 1
    assert await claimed_ids(kit) == []


async def test_most_at_once_of_zero_hands_out_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()

    await kit.controls.limit("resize", max_executing=0)

    assert await claimed_ids(kit) == []


async def test_most_at_once_below_what_runs_hands_out_nothing_and_takes_nothing_away(kit: Kit) -> None:
    await kit.worker()
    started = await started_count(kit, 3)
    await kit.submit()

    await kit.controls.limit(max_executing=1)

    assert await claimed_ids(kit) == []
    await complete_all(kit, started)


async def test_limits_hold_together_and_the_narrowest_wins(kit: Kit) -> None:
    await submit_count(kit, 20)
    await kit.worker()

    await kit.controls.limit(max_executing=4, tasks_per_second=10)
    await kit.controls.limit("resize", max_executing=8, tasks_per_second=6)

    assert len(await claimed_ids(kit)) == 4


async def test_limits_hold_in_the_order_of_rank(kit: Kit) -> None:
    await submit_count(kit, 3, "resize", priority="low")
    high = await submit_count(kit, 3, "crop", priority="high")
    await kit.worker()

    await kit.controls.limit(max_executing=3)

    assert await claimed_ids(kit) == high


async def test_a_limit_replaces_both_limits_of_its_scope(kit: Kit) -> None:
    await kit.controls.limit("resize", tasks_per_second=2.5, max_executing=7)
    both = (await kit.insight.stats()).controls["resize"].limits
    await kit.controls.limit("resize", max_executing=3)

    assert both == Limits(2.5, 7)
    assert (await kit.insight.stats()).controls["resize"].limits == Limits(None, 3)


@pytest.mark.parametrize(
    "limits",
    [{"tasks_per_second": -1}, {"tasks_per_second": 2e6}, {"tasks_per_second": float("nan")}, {"max_executing": -1}],
    ids=str,
)
async def test_a_limit_that_makes_no_sense_changes_nothing(kit: Kit, limits: dict[str, float]) -> None:
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await kit.controls.limit("resize", **limits)  # pyright: ignore[reportArgumentType]

    assert await kit.dump() == before


async def test_a_control_of_a_name_that_is_none_changes_nothing(kit: Kit) -> None:
    before = await kit.dump()

    for word in (kit.controls.pause, kit.controls.resume, kit.controls.limit):
        with pytest.raises(InvalidRequest):
            await word("no spaces")
    with pytest.raises(InvalidRequest):
        await kit.controls.pause("resize", reason="x" * 201)

    assert await kit.dump() == before
