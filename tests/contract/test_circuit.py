"""A worker that fails at most of what it does gets no new work for a while, and then three tasks to prove itself."""

import pytest

from tests.kit import Kit
from tideq.queue_core.engine.attempts import Held, Verdict
from tideq.queue_core.engine.fleet import Member

OPEN_MS = 60_000


async def attempt_many(kit: Kit, count: int, verdict: Verdict | None = None, worker_id: str = "w1") -> None:
    """So many attempts, one after the other, that end well or with this verdict."""
    for _ in range(count):
        await kit.submit()
        task = await kit.started(worker_id)
        await (kit.fail(task, worker_id, verdict=verdict) if verdict else kit.complete(task, worker_id))


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

    assert (member.circuit, member.state) == ("open", "active")
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
async def test_what_is_not_to_be_retried_is_the_tasks_fault(kit: Kit, verdict: Verdict) -> None:
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

    await shut.attempts.release("w1", [Held(task.task_id, task.lease)])
    await attempt_many(shut, 3)

    assert (await circuit(shut)).circuit == "closed"


async def test_a_worker_that_registers_anew_begins_anew(shut: Kit) -> None:
    await shut.fleet.dismiss("w1")

    await shut.worker("w1")

    assert (await circuit(shut)).circuit == "closed"


async def test_explain_does_not_count_on_a_worker_that_is_shut_off(shut: Kit) -> None:
    task_id = await shut.submit()

    assert (await shut.insight.explain(task_id)).serving_worker_count == 0
