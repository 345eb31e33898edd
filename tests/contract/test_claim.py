"""claim: queued -> assigned."""

import pytest

from tests.contract.situations import claimed_ids, held, started_count, submit_count
from tests.kit import Kit
from tideq.queue_core.errors import InvalidRequest, StaleLease, UnknownWorker
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import NewTask


async def test_claim_assigns_the_task_and_hides_it_for_the_assignment_timeout(kit: Kit) -> None:
    task_id = await kit.submit(parameters=b"[1]")
    await kit.worker()

    claim = await kit.queue.claim("w1")

    task = await kit.read(task_id)
    assert (task.state, task.reason, task.worker_id) == (TaskState.ASSIGNED, Reason.CLAIMED, "w1")
    assert task.visible_at_ms == claim.tasks[0].visible_at_ms == claim.now_ms + 30_000
    assert (task.attempt, task.version, task.assigned_at_ms) == (1, 2, claim.now_ms)


async def test_claim_hands_over_what_the_worker_needs(kit: Kit) -> None:
    task_id = await kit.submit(parameters=b"[1]", timeout_ms=5_000)
    await kit.worker()

    claimed = await kit.claimed()

    assert (claimed.task_id, claimed.attempt, claimed.timeout_ms) == (task_id, 1, 5_000)
    assert claimed.definition.parameters == b"[1]"
    assert claimed.lease.startswith("1-")
    assert len(claimed.lease) > 32


async def test_claim_gives_every_task_of_every_claim_another_lease(kit: Kit) -> None:
    await submit_count(kit, 20)
    await kit.worker()

    first = (await kit.queue.claim("w1", 10)).tasks
    second = (await kit.queue.claim("w1", 10)).tasks

    assert len({task.lease for task in first + second}) == 20


@pytest.mark.parametrize("wanted", [1, 2, 7, 64, 999, 1_000])
async def test_claim_takes_as_many_as_wanted_in_order(kit: Kit, wanted: int) -> None:
    task_ids = await submit_count(kit, 1_000)
    await kit.worker()

    assert await claimed_ids(kit, wanted=wanted) == task_ids[:wanted]


async def test_claim_of_more_than_there_are_takes_all(kit: Kit) -> None:
    task_ids = await submit_count(kit, 3)
    await kit.worker()

    assert await claimed_ids(kit) == task_ids
    assert await claimed_ids(kit) == []


async def test_claim_takes_the_lowest_rank_first(kit: Kit) -> None:
    low, medium, high = [await kit.submit(priority=name) for name in ("low", "medium", "high")]
    favoured = await kit.submit(head_start_ms=60_000)
    await kit.clock.advance(1_000)
    late_high = await kit.submit(priority="high")
    await kit.worker()

    assert await claimed_ids(kit) == [high, late_high, favoured, medium, low]


@pytest.mark.parametrize("wanted", [0, -1, 1_001])
async def test_claim_of_a_senseless_number_is_refused(kit: Kit, wanted: int) -> None:
    await kit.worker()
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await kit.queue.claim("w1", wanted)

    assert await kit.dump() == before


# Lanes and capabilities


async def test_claim_takes_only_types_the_worker_declared(kit: Kit) -> None:
    await kit.submit("crop", priority="high")
    wanted = [await kit.submit("resize"), await kit.submit("blur")]
    await kit.worker(task_types=("resize", "blur"))

    assert await claimed_ids(kit) == wanted


async def test_claim_takes_only_tasks_whose_capabilities_the_worker_has(kit: Kit) -> None:
    plain = await kit.submit()
    gpu = await kit.submit(required_capabilities=("gpu",))
    await kit.submit(required_capabilities=("gpu", "cuda"))
    await kit.worker(capabilities=("gpu", "avx"))

    assert await claimed_ids(kit) == [plain, gpu]


async def test_claim_by_a_worker_of_any_type_takes_every_type_in_order(kit: Kit) -> None:
    expected: list[str] = []
    for task_type in ("a", "b", "a", "c", "b"):
        expected.append(await kit.submit(task_type))
        await kit.clock.advance(1)
    await kit.worker()

    assert await claimed_ids(kit) == expected


async def test_claim_by_a_worker_of_any_type_still_needs_the_capabilities(kit: Kit) -> None:
    await kit.submit(required_capabilities=("gpu",))
    await kit.worker()

    assert await claimed_ids(kit) == []


async def test_claim_with_another_profile_takes_what_that_serves(kit: Kit) -> None:
    gpu = await kit.submit(required_capabilities=("gpu",))
    await kit.submit()
    await kit.worker(capabilities=("gpu",), task_types=("resize",))

    claim = await kit.queue.claim("w1", 10, capabilities=())

    assert gpu not in [task.task_id for task in claim.tasks]
    assert len(claim.tasks) == 1


async def test_claim_serves_a_lane_that_opened_after_an_earlier_claim(kit: Kit) -> None:
    await kit.worker()
    await claimed_ids(kit)

    task_id = await kit.submit("brand-new")

    assert await claimed_ids(kit) == [task_id]


@pytest.mark.parametrize("wanted", [1, 7, 1_000])
async def test_claim_over_more_than_64_lanes_keeps_the_order(kit: Kit, wanted: int) -> None:
    # 150 lanes, two tasks each, ranked by a shuffle that has nothing to do with the lanes' numbers.
    head_starts = {number: (number * 7919) % 300 for number in range(300)}
    tasks = [
        NewTask(task_type=f"t{number % 150}", head_start_ms=start * 1_000) for number, start in head_starts.items()
    ]
    submitted = await kit.queue.submit_many(tasks)
    await kit.worker()

    taken: list[str] = []
    while (batch := await claimed_ids(kit, wanted=wanted)) and len(taken) < 40:
        taken += batch

    by_rank = sorted(submitted, key=lambda task: (task.rank, task.task_id))
    assert taken == [task.task_id for task in by_rank][: len(taken)]
    assert len(taken) >= 40


async def test_claim_over_many_lanes_passes_by_those_it_may_not_serve(kit: Kit) -> None:
    forbidden = [NewTask(task_type=f"g{n}", required_capabilities=("gpu",), priority="high") for n in range(100)]
    allowed = [NewTask(task_type=f"c{n}", head_start_ms=-n) for n in range(100)]
    await kit.queue.submit_many(forbidden)
    submitted = await kit.queue.submit_many(allowed)
    await kit.worker()

    assert await claimed_ids(kit) == [task.task_id for task in submitted]


# Polls that are repeated


async def test_claim_repeated_with_its_poll_id_returns_the_same_tasks_and_leases(kit: Kit) -> None:
    await submit_count(kit, 5)
    await kit.worker()
    first = await kit.queue.claim("w1", 2, poll_id="p")
    before = await kit.read(first.tasks[0].task_id)

    again = await kit.queue.claim("w1", 2, poll_id="p")

    assert again.tasks == first.tasks
    assert (first.answer, again.answer) == (1, 2)
    assert (await kit.read(before.task_id)).version == before.version


async def test_claim_repeated_after_a_start_returns_only_what_is_still_assigned(kit: Kit) -> None:
    await submit_count(kit, 2)
    await kit.worker()
    first = await kit.queue.claim("w1", 2, poll_id="p")
    await kit.start(first.tasks[0])

    again = await kit.queue.claim("w1", 2, poll_id="p")

    assert again.tasks == first.tasks[1:]


async def test_claim_repeated_when_all_were_started_takes_new_tasks(kit: Kit) -> None:
    task_ids = await submit_count(kit, 2)
    await kit.worker()
    await kit.start((await kit.queue.claim("w1", 1, poll_id="p")).tasks[0])

    again = await kit.queue.claim("w1", 1, poll_id="p")

    assert [task.task_id for task in again.tasks] == task_ids[1:]


async def test_claim_repeated_after_the_assignment_lapsed_hands_out_a_new_lease(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    first = await kit.queue.claim("w1", 1, poll_id="p")
    await kit.clock.advance(30_000)

    again = await kit.queue.claim("w1", 1, poll_id="p")

    assert again.tasks[0].task_id == first.tasks[0].task_id
    assert again.tasks[0].lease != first.tasks[0].lease


async def test_claim_by_another_worker_with_the_same_poll_id_takes_its_own(kit: Kit) -> None:
    task_ids = await submit_count(kit, 2)
    await kit.worker("w1")
    await kit.worker("w2")
    await kit.queue.claim("w1", 1, poll_id="p")

    other = await kit.queue.claim("w2", 1, poll_id="p")

    assert [task.task_id for task in other.tasks] == task_ids[1:]


async def test_claim_without_a_poll_id_is_never_repeated(kit: Kit) -> None:
    task_ids = await submit_count(kit, 2)
    await kit.worker()

    assert [await claimed_ids(kit, wanted=1) for _ in task_ids] == [[task_id] for task_id in task_ids]


async def test_claim_says_whether_an_earlier_answer_handed_the_same_tasks_out(kit: Kit) -> None:
    await kit.worker()
    await submit_count(kit, 2)

    answers = [await kit.queue.claim("w1", 1, poll_id=poll_id) for poll_id in ("p", "p", "q", "")]

    assert [(len(answer.tasks), answer.is_repeat) for answer in answers] == [
        (1, False),
        (1, True),
        (1, False),
        (0, False),
    ]


# Answers that are withdrawn


async def test_withdraw_puts_the_answers_tasks_back_in_their_place_free_of_charge(kit: Kit) -> None:
    task_ids = await submit_count(kit, 3)
    await kit.worker()
    ranks = [(await kit.read(task_id)).rank for task_id in task_ids]
    claim = await kit.queue.claim("w1", 2, poll_id="p")

    released = await kit.queue.undo_claim("w1", "p", claim.answer)

    tasks = [await kit.read(task_id) for task_id in task_ids]
    assert released == 2
    assert [(task.attempt, task.deliveries, task.state) for task in tasks] == [(0, 0, TaskState.QUEUED)] * 3
    assert [task.rank for task in tasks] == ranks
    assert await claimed_ids(kit) == task_ids


async def test_withdraw_makes_the_leases_stale(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    claim = await kit.queue.claim("w1", 1, poll_id="p")

    await kit.queue.undo_claim("w1", "p", claim.answer)

    with pytest.raises(StaleLease):
        await kit.start(claim.tasks[0])


async def test_withdraw_after_a_later_answer_went_out_changes_nothing(kit: Kit) -> None:
    await submit_count(kit, 2)
    await kit.worker()
    first = await kit.queue.claim("w1", 2, poll_id="p")
    await kit.queue.claim("w1", 2, poll_id="p")
    before = await kit.dump()

    assert await kit.queue.undo_claim("w1", "p", first.answer) == 0

    assert await kit.dump() == before


async def test_withdraw_leaves_what_was_started(kit: Kit) -> None:
    await submit_count(kit, 2)
    await kit.worker()
    claim = await kit.queue.claim("w1", 2, poll_id="p")
    await kit.start(claim.tasks[0])

    assert await kit.queue.undo_claim("w1", "p", claim.answer) == 1

    assert (await kit.read(claim.tasks[0].task_id)).state is TaskState.EXECUTING


async def test_withdraw_twice_or_of_an_unknown_poll_changes_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    claim = await kit.queue.claim("w1", 1, poll_id="p")
    await kit.queue.undo_claim("w1", "p", claim.answer)
    before = await kit.dump()

    again = await kit.queue.undo_claim("w1", "p", claim.answer)
    unknown = await kit.queue.undo_claim("w1", "never", 1)

    assert (again, unknown) == (0, 0)
    assert await kit.dump() == before


async def test_withdraw_does_not_take_a_task_the_worker_claimed_anew(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    claim = await kit.queue.claim("w1", 1, poll_id="p")
    await kit.attempts.release("w1", held(*claim.tasks))
    await kit.claimed("w1")

    assert await kit.queue.undo_claim("w1", "p", claim.answer) == 0


# When to ask again


async def test_claim_that_finds_nothing_and_nothing_hidden_says_no_time(kit: Kit) -> None:
    await kit.worker()

    assert (await kit.queue.claim("w1")).retry_at_ms is None


async def test_claim_that_finds_nothing_says_when_the_next_task_falls_due(kit: Kit) -> None:
    later = await kit.read(await kit.submit(delay_ms=60_000))
    sooner = await kit.read(await kit.submit(delay_ms=20_000))
    await kit.worker()

    claim = await kit.queue.claim("w1")

    assert claim.retry_at_ms == sooner.visible_at_ms
    assert sooner.eligible_at_ms < later.eligible_at_ms


async def test_claim_that_finds_nothing_says_when_another_workers_assignment_lapses(kit: Kit) -> None:
    await kit.submit()
    await kit.worker("w1")
    await kit.worker("w2")
    first = await kit.claimed("w1")

    assert (await kit.queue.claim("w2")).retry_at_ms == first.visible_at_ms


async def test_claim_that_finds_nothing_says_when_a_worker_would_be_given_up(kit: Kit) -> None:
    await kit.worker("w1")
    await started_count(kit, 1)
    silent_since_ms = (await kit.fleet.heartbeat("w1")).now_ms
    await kit.worker("w2")

    claim = await kit.queue.claim("w2")

    assert claim.retry_at_ms is not None
    assert claim.retry_at_ms <= silent_since_ms + 90_000


async def test_claim_held_back_by_a_rate_says_when_it_refills(kit: Kit) -> None:
    await submit_count(kit, 2)
    await kit.worker()
    await kit.controls.limit("resize", tasks_per_second=0.5)
    first = await kit.queue.claim("w1", 2)

    second = await kit.queue.claim("w1", 2)

    assert (len(first.tasks), len(second.tasks)) == (1, 0)
    assert second.retry_at_ms == first.now_ms + 2_000


@pytest.mark.parametrize("task_type", [None, "resize"])
async def test_claim_of_nothing_under_a_rate_never_says_to_ask_again_in_the_past(
    kit: Kit, task_type: str | None
) -> None:
    await kit.worker()
    await kit.submit()
    await kit.controls.limit(task_type, tasks_per_second=10)
    await kit.complete(await kit.started())

    claim = await kit.queue.claim("w1")

    assert claim.retry_at_ms is None or claim.retry_at_ms > claim.now_ms


# Who may claim


async def test_claim_by_a_draining_worker_gets_nothing_and_is_told_to_drain(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    await kit.fleet.drain("w1")

    claim = await kit.queue.claim("w1")

    assert (claim.tasks, claim.should_drain) == ((), True)


async def test_claim_by_an_unhealthy_worker_gets_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    await kit.fleet.set_health("w1", is_healthy=False)

    claim = await kit.queue.claim("w1")

    assert (claim.tasks, claim.should_drain) == ((), False)


async def test_claim_by_a_worker_healthy_again_gets_work(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.worker()
    await kit.fleet.set_health("w1", is_healthy=False)

    await kit.fleet.set_health("w1", is_healthy=True)

    assert await claimed_ids(kit) == [task_id]


async def test_claim_by_an_unknown_worker_changes_nothing(kit: Kit) -> None:
    await kit.submit()
    before = await kit.dump()

    with pytest.raises(UnknownWorker) as refusal:
        await kit.queue.claim("nobody")

    assert refusal.value.worker_id == "nobody"
    assert await kit.dump() == before


async def test_claim_by_a_worker_given_up_as_dead_is_refused(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    await kit.clock.advance(90_000)
    await kit.queue.sweep()

    with pytest.raises(UnknownWorker):
        await kit.queue.claim("w1")


async def test_claim_counts_as_a_heartbeat(kit: Kit) -> None:
    await kit.worker()
    await kit.clock.advance(80_000)

    await kit.queue.claim("w1")
    await kit.clock.advance(80_000)
    await kit.queue.sweep()

    assert (await kit.insight.stats()).workers.active == 1


# Recovery on the way


async def test_claim_takes_a_task_whose_delay_is_over(kit: Kit) -> None:
    task_id = await kit.submit(delay_ms=1_000)
    await kit.worker()
    await kit.clock.advance(1_000)

    assert await claimed_ids(kit) == [task_id]


async def test_claim_takes_over_an_assignment_that_lapsed(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.worker("w1")
    await kit.worker("w2")
    await kit.claimed("w1")
    await kit.clock.advance(30_000)

    taken = await kit.claimed("w2")

    task = await kit.read(task_id)
    assert taken.task_id == task_id
    assert (task.worker_id, task.deliveries, task.attempt) == ("w2", 1, 1)


async def test_claim_gives_a_recovered_task_its_old_place(kit: Kit) -> None:
    await kit.worker("w1")
    await kit.worker("w2")
    first = await kit.submit()
    await kit.claimed("w1")
    await submit_count(kit, 20)
    await kit.clock.advance(30_000)

    assert (await kit.claimed("w2")).task_id == first


async def test_claim_recovers_what_a_dead_worker_executed(kit: Kit) -> None:
    await kit.worker("w1")
    (lost,) = await started_count(kit, 1)
    await kit.clock.advance(90_000)
    await kit.worker("w2")

    await kit.queue.claim("w2")
    await kit.clock.advance(10_000)

    assert (await kit.claimed("w2")).task_id == lost.task_id


async def test_claim_recovers_a_bounded_number(kit: Kit) -> None:
    await submit_count(kit, 120, delay_ms=1_000)
    await kit.worker()
    await kit.clock.advance(1_000)

    taken = await claimed_ids(kit)

    assert len(taken) == 50
    assert (await kit.insight.stats()).due_count == 70


@pytest.mark.parametrize("rate", [0, 48])
async def test_claim_of_large_tasks_hands_out_a_few_megabytes_and_the_rest_to_who_asks_again(
    kit: Kit, rate: int
) -> None:
    await kit.worker(capacity=100)
    large = b'{"pad":"' + b"x" * 250_000 + b'"}'
    for _ in range(2):
        await kit.queue.submit_many([NewTask(task_type=f"t{number % 3}") for number in range(12)])
        await kit.queue.submit_many([NewTask(task_type=f"t{number % 3}", parameters=large) for number in range(12)])
    await kit.controls.limit(tasks_per_second=rate)
    for task_type in ("t0", "t1", "t2"):
        await kit.controls.limit(task_type, tasks_per_second=rate / 3)
    await kit.clock.stop()

    answers = [(await kit.queue.claim("w1", 100)).tasks for _ in range(3)]

    sizes = [sum(len(task.definition.parameters) for task in tasks) for tasks in answers]
    assert all(size <= 5_500_000 for size in sizes)
    assert max(sizes) > 2_000_000
    assert len({task.task_id for tasks in answers for task in tasks}) == 48
    await kit.assert_sound()
