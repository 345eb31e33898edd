"""A worker that fails at most of a task type gets no more of it for a while, and then three tasks to prove itself."""

from typing import Any

import pytest

from tests.kit import Kit
from tideq.queue_core.attempts import AttemptVerb, LeaseRef
from tideq.queue_core.circuits import CircuitState
from tideq.queue_core.settings import Circuit, QueueSettings
from tideq.queue_core.worker_calls import Member

OPEN_MS = 60_000


async def attempt_many(
    kit: Kit, count: int, verdict: AttemptVerb | None = None, *, task_type: str = "resize", **fields: Any
) -> None:
    """So many attempts, one after the other, that end well or with this verdict."""
    for _ in range(count):
        await kit.submit(task_type)
        task = await kit.started()
        assert task.definition.task_type == task_type
        await (kit.fail(task, verdict=verdict, **fields) if verdict else kit.complete(task))


async def circuit(kit: Kit, worker_id: str = "w1") -> Member:
    return next(each for each in (await kit.fleet.members()).members if each.worker.worker_id == worker_id)


@pytest.fixture
async def shut(kit: Kit) -> Kit:
    await kit.worker("w1", capacity=20)
    await attempt_many(kit, 5, "retry")
    return kit


async def test_five_failures_of_five_open_it_for_a_minute(shut: Kit) -> None:
    member, stats = await circuit(shut), await shut.insight.stats()
    await shut.submit()

    assert (member.circuit, member.status) == ("open", "active")
    assert 0 < (member.circuit_open_until_ms or 0) - stats.now_ms <= OPEN_MS
    assert stats.workers.open_circuits == 1
    assert not (await shut.queue.claim("w1", 1)).tasks
    await shut.assert_sound()


async def test_others_go_on(shut: Kit) -> None:
    await shut.worker("w2")

    await shut.submit()

    assert (await shut.queue.claim("w2", 1)).tasks


async def test_four_failures_do_not_open_it(kit: Kit) -> None:
    await kit.worker()

    await attempt_many(kit, 4, "retry")

    assert (await circuit(kit)).circuit == "closed"


async def test_half_of_all_is_not_more_than_half(kit: Kit) -> None:
    await kit.worker()

    await attempt_many(kit, 5)
    await attempt_many(kit, 5, "retry")
    assert (await circuit(kit)).circuit == "closed"

    await attempt_many(kit, 1, "retry")
    assert (await circuit(kit)).circuit == "open"


@pytest.mark.parametrize("verdict", ["fail", "discard"])
async def test_what_is_not_to_be_retried_is_the_tasks_fault(kit: Kit, verdict: AttemptVerb) -> None:
    await kit.worker()

    await attempt_many(kit, 9, verdict)

    assert (await circuit(kit)).circuit == "closed"


async def test_failures_of_more_than_a_minute_ago_do_not_count(kit: Kit) -> None:
    await kit.worker()

    await attempt_many(kit, 4, "retry")
    await kit.clock.advance(OPEN_MS)
    await attempt_many(kit, 4, "retry")

    assert (await circuit(kit)).circuit == "closed"


async def test_deadlines_missed_count_as_failures(kit: Kit) -> None:
    await kit.worker("w1", capacity=20)
    for _ in range(5):
        await kit.submit(timeout_ms=1_000)
    for _ in range(5):
        await kit.started()

    await kit.clock.advance(1_000)
    claim = await kit.queue.claim("w1", 1)

    assert (await circuit(kit)).circuit == "open"
    assert not claim.tasks, "also not by the claim that noticed"


async def test_what_it_holds_it_may_finish(kit: Kit) -> None:
    await kit.worker("w1", capacity=20)
    await kit.submit()
    before = await kit.started()
    await attempt_many(kit, 5, "retry")

    assert await kit.complete(before) == "completed"
    assert (await circuit(kit)).circuit == "open"


async def test_after_a_minute_three_tasks_are_tried_and_no_more(shut: Kit) -> None:
    for _ in range(9):
        await shut.submit()
    await shut.clock.advance(OPEN_MS)

    first, second = await shut.queue.claim("w1", 2), await shut.queue.claim("w1", 9)

    assert (len(first.tasks), len(second.tasks)) == (2, 1)
    assert not (await shut.queue.claim("w1", 1)).tasks
    assert (await circuit(shut)).circuit == "trial"


async def test_three_that_end_well_close_it(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS)

    await attempt_many(shut, 3)
    for _ in range(9):
        await shut.submit()

    assert (await circuit(shut)).circuit == "closed"
    assert len((await shut.queue.claim("w1", 9)).tasks) == 9


async def test_one_that_fails_opens_it_again(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS)

    await attempt_many(shut, 2)
    await attempt_many(shut, 1, "retry")

    assert (await circuit(shut)).circuit == "open"


async def test_a_trial_handed_back_decides_nothing(shut: Kit) -> None:
    await shut.submit()
    await shut.clock.advance(OPEN_MS)
    task = await shut.started()

    await shut.attempts.release("w1", [LeaseRef(task.task_id, task.lease)])
    await attempt_many(shut, 3)

    assert (await circuit(shut)).circuit == "closed"


async def test_a_worker_that_registers_anew_begins_anew(shut: Kit) -> None:
    await shut.fleet.remove("w1")

    await shut.worker("w1")

    assert (await circuit(shut)).circuit == "closed"


async def test_explain_does_not_count_on_a_worker_that_is_shut_off(shut: Kit) -> None:
    task_id, other_id = await shut.submit(), await shut.submit("crawl")
    await shut.worker("w2", task_types=("resize",))

    found, other = await shut.insight.explain(task_id), await shut.insight.explain(other_id)

    assert (found.serving_worker_count, found.blocked_worker_count) == (1, 1)
    assert found.blocked_until_ms == (await circuit(shut)).circuit_open_until_ms
    assert (other.serving_worker_count, other.blocked_worker_count, other.blocked_until_ms) == (1, 0, None)


async def test_explain_does_not_count_on_a_worker_whose_trials_are_all_given(shut: Kit) -> None:
    task_id = [await shut.submit() for _ in range(4)][-1]
    await shut.clock.advance(OPEN_MS)
    before = await shut.insight.explain(task_id)
    trials = (await shut.queue.claim("w1", 3)).tasks
    during = await shut.insight.explain(task_id)
    await shut.start(trials[0])
    await shut.complete(trials[0])
    after_one = await shut.insight.explain(task_id)
    for each in trials[1:]:
        await shut.start(each)
        await shut.complete(each)
    after_all = await shut.insight.explain(task_id)

    told = [(each.serving_worker_count, each.trials_left) for each in (before, during, after_one, after_all)]
    assert told == [(1, (3,)), (0, (0,)), (0, (0,)), (1, ())]
    assert (during.blocked_worker_count, during.blocked_until_ms) == (1, None)


async def test_another_type_is_given_as_ever(shut: Kit) -> None:
    await shut.submit()
    healthy = await shut.submit("crawl")

    claim = await shut.queue.claim("w1", 2)

    assert [task.task_id for task in claim.tasks] == [healthy]
    assert [each.task_type for each in claim.circuits] == ["resize"]
    assert (await circuit(shut)).circuits == claim.circuits == (await shut.fleet.heartbeat("w1")).circuits


async def test_all_lanes_of_the_type_are_shut_and_one_trial_is_for_all_of_them(shut: Kit) -> None:
    await shut.fleet.remove("w1")
    await shut.worker("w1", capabilities=("gpu", "ssd"), capacity=20)
    await attempt_many(shut, 5, "retry")
    for needs in ((), ("gpu",), ("ssd",), ("gpu", "ssd")):
        for _ in range(2):
            await shut.submit(required_capabilities=needs)

    assert not (await shut.queue.claim("w1", 9)).tasks
    await shut.clock.advance(OPEN_MS)
    assert len((await shut.queue.claim("w1", 9)).tasks) == 3


async def test_what_comes_started_is_held_back_as_well(shut: Kit) -> None:
    await shut.submit()

    assert not (await shut.queue.claim("w1", 1, poll_id="p1", starts=True)).tasks


async def test_a_claim_says_when_the_trial_begins(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS // 2)
    await shut.submit()

    claim = await shut.queue.claim("w1", 1)

    assert claim.retry_at_ms is not None
    assert claim.retry_at_ms <= ((await circuit(shut)).circuit_open_until_ms or 0)


async def test_a_worker_whose_every_type_fails_gets_nothing(kit: Kit) -> None:
    await kit.worker("w1", task_types=("resize", "crawl"))
    await attempt_many(kit, 5, "retry")
    await attempt_many(kit, 5, "retry", task_type="crawl")
    for task_type in ("resize", "crawl"):
        await kit.submit(task_type)

    assert not (await kit.queue.claim("w1", 9)).tasks
    assert [each.task_type for each in (await circuit(kit)).circuits] == ["crawl", "resize"]
    assert (await kit.insight.stats()).workers.open_circuits_by_type == {"crawl": 1, "resize": 1}


async def test_results_of_another_type_decide_nothing(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS)
    trials = await shut.queue.claim("w1", 3)

    await attempt_many(shut, 9, task_type="crawl")
    await attempt_many(shut, 1, "retry", task_type="crawl")
    assert (await circuit(shut)).circuits == (CircuitState("resize", None),)

    await shut.start(trials.tasks[0])
    await shut.fail(trials.tasks[0])
    assert (await circuit(shut)).circuit == "open"


async def test_trials_are_of_the_type_whatever_else_the_worker_holds(shut: Kit) -> None:
    for _ in range(9):
        await shut.submit("crawl")
        await shut.started()
    await shut.clock.advance(OPEN_MS)
    for _ in range(9):
        await shut.submit()

    assert len((await shut.queue.claim("w1", 9)).tasks) == 3


@pytest.mark.parametrize(
    "told", [{"code": "RATE_LIMIT"}, {"code": "TEMPORARY_UNAVAILABLE"}, {"code": "Retry"}, {"is_deliberate": True}]
)
async def test_what_the_handler_asks_for_is_no_failure(kit: Kit, told: dict[str, Any]) -> None:
    await kit.worker()

    await attempt_many(kit, 9, "retry", **told)

    assert (await circuit(kit)).circuit == "closed"


async def test_a_dead_worker_leaves_no_circuit_behind(shut: Kit) -> None:
    await shut.clock.advance(100_000)
    await shut.queue.sweep()

    assert (await shut.insight.stats()).workers.open_circuits == 0


async def test_counts_of_a_worker_do_not_grow_with_its_age(kit: Kit) -> None:
    await kit.worker()
    for _ in range(20):
        await attempt_many(kit, 1)
        await kit.clock.advance(10_000)

    kept = await kit.client.hget(kit.keys.prefix("worker") + "w1", "outcomes:resize")

    assert len(kept.split()) <= 7


class TestOfTheWholeWorker:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(circuit=Circuit(mode="worker"))

    async def test_failures_of_all_types_add_up_and_it_gets_nothing(self, kit: Kit) -> None:
        await kit.worker()
        await attempt_many(kit, 3, "retry")
        await attempt_many(kit, 2, "retry", task_type="crawl")
        await kit.submit("other")

        assert not (await kit.queue.claim("w1", 1)).tasks
        assert [each.task_type for each in (await circuit(kit)).circuits] == ["*"]

    async def test_three_tasks_of_any_type_decide(self, kit: Kit) -> None:
        await kit.worker(capacity=20)
        await attempt_many(kit, 5, "retry")
        await kit.clock.advance(OPEN_MS)
        for task_type in ("a", "b", "c", "d"):
            await kit.submit(task_type)

        claim = await kit.queue.claim("w1", 9)
        assert len(claim.tasks) == 3
        for task in claim.tasks:
            await kit.start(task)
            await kit.complete(task)

        assert (await circuit(kit)).circuit == "closed"


class TestSwitchedOff:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(circuit=Circuit(mode="off"))

    async def test_nothing_opens(self, kit: Kit) -> None:
        await kit.worker()

        await attempt_many(kit, 9, "retry")

        assert (await circuit(kit)).circuit == "closed"
