"""fail: executing -> queued | failed | dead_letter."""

from itertools import product

import pytest

from tests.contract.situations import NEVER_MADE_ID, events, held, started_count, task_in, terminal_events
from tests.kit import Kit
from tideq.queue_core.attempts import Failure
from tideq.queue_core.errors import PayloadTooLarge, StaleLease, TaskNotFound, WrongState
from tideq.queue_core.retry_policy import Backoff, delay_ms, next_timeout_ms
from tideq.queue_core.settings import Circuit, Leases, QueueSettings
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import NewTask

CODES = ("", "RATE_LIMIT", "TEMPORARY_UNAVAILABLE", "OUT_OF_MEMORY", "TIMEOUT", "ELSE")
JITTERS = (-1.0, -0.37, 0.0, 0.123456789, 1.0)
BACKOFFS = (None, Backoff(base_ms=7, multiplier=1.7, cap_ms=100_000), Backoff(base_ms=0), Backoff(multiplier=1))


@pytest.fixture
def settings() -> QueueSettings:
    """One worker fails all the time here, and goes on."""
    return QueueSettings(circuit=Circuit(failures=1_000))


async def test_fail_hides_the_task_for_its_backoff(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    state = await kit.fail(started, jitter=0.0)

    task = await kit.read(started.task_id)
    assert state == "queued"
    assert (task.state, task.reason, task.retry_count) == (TaskState.QUEUED, Reason.ERROR, 1)
    assert task.visible_at_ms == task.state_since_ms + 10_000


async def test_fail_keeps_the_rank(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    rank = (await kit.read(started.task_id)).rank

    await kit.clock.advance(5_000)
    await kit.fail(started)

    assert (await kit.read(started.task_id)).rank == rank


async def test_fail_doubles_the_delay_each_time_up_to_the_cap(kit: Kit) -> None:
    await kit.worker()
    await kit.submit(max_retries=13)
    delays: list[int] = []

    for _ in range(13):
        started = await kit.started()
        await kit.fail(started, jitter=0.0)
        task = await kit.read(started.task_id)
        delays.append((task.visible_at_ms or 0) - task.state_since_ms)
        await kit.clock.advance(delays[-1])

    assert delays == [min(10_000 * 2**retry, 21_600_000) for retry in range(13)]


async def test_fail_delays_as_the_retry_policy_says_for_every_retry_code_and_jitter(kit: Kit) -> None:
    combinations = list(product(CODES, JITTERS, BACKOFFS))
    submitted = await kit.queue.submit_many(
        [NewTask(task_type="resize", max_retries=1_000, backoff=backoff) for _, _, backoff in combinations]
    )
    plans = {task.task_id: plan for task, plan in zip(submitted, combinations, strict=True)}
    await kit.worker()

    for retry in range(13):
        tasks = (await kit.queue.claim("w1", len(plans))).tasks
        await kit.attempts.start("w1", held(*tasks))
        await kit.attempts.fail(
            "w1",
            [
                Failure(task.task_id, task.lease, b"{}", code=plans[task.task_id][0], jitter=plans[task.task_id][1])
                for task in tasks
            ],
        )

        for task in await kit.queue.read_many(list(plans)):
            assert task is not None
            code, jitter, backoff = plans[task.task_id]
            expected = delay_ms(backoff or Backoff(), retry, code, jitter)
            assert (task.visible_at_ms or 0) - task.state_since_ms == expected, (retry, code, jitter, backoff)
        await kit.clock.advance(60_000_000)
        await kit.fleet.heartbeat("w1")
        await kit.queue.sweep()


async def test_fail_spreads_delays_by_a_fifth_either_way(kit: Kit) -> None:
    await kit.worker()
    tasks = await started_count(kit, 100)

    await kit.attempts.fail("w1", [Failure(task.task_id, task.lease, b"{}") for task in tasks])

    read = await kit.queue.read_many([task.task_id for task in tasks])
    delays = [(task.visible_at_ms or 0) - task.state_since_ms for task in read if task is not None]
    assert all(8_000 <= delay <= 12_000 for delay in delays)
    assert len(set(delays)) > 50


@pytest.mark.parametrize("code", ["RATE_LIMIT", "TEMPORARY_UNAVAILABLE"])
async def test_fail_with_a_code_that_asks_for_air_doubles_the_delay(kit: Kit, code: str) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.fail(started, code=code, jitter=0.0)

    task = await kit.read(started.task_id)
    assert task.visible_at_ms == task.state_since_ms + 20_000


@pytest.mark.parametrize(
    ("timeout_ms", "code", "raised_ms"),
    [
        (600_000, "OUT_OF_MEMORY", 900_000),
        (600_000, "TIMEOUT", 900_000),
        (3_000_000, "OUT_OF_MEMORY", 3_600_000),
        (3_600_000, "OUT_OF_MEMORY", 3_600_000),
        (7_200_000, "OUT_OF_MEMORY", 7_200_000),
        (33_333, "OUT_OF_MEMORY", 49_999),
        (600_000, "", 600_000),
    ],
)
async def test_fail_raises_the_timeout_only_of_what_was_cut_short(
    kit: Kit, timeout_ms: int, code: str, raised_ms: int
) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=timeout_ms)

    await kit.fail(started, code=code)

    assert (await kit.read(started.task_id)).timeout_ms == raised_ms == next_timeout_ms(timeout_ms, code)


class TestOfAServiceWithALongestExecution:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(leases=Leases(max_execution_ms=700_000))

    @pytest.mark.parametrize(("timeout_ms", "raised_ms"), [(600_000, 700_000), (400_000, 600_000), (700_000, 700_000)])
    async def test_fail_raises_no_timeout_above_it(self, kit: Kit, timeout_ms: int, raised_ms: int) -> None:
        await kit.worker()
        (started,) = await started_count(kit, 1, timeout_ms=timeout_ms)

        await kit.fail(started, code="TIMEOUT")

        assert (
            (await kit.read(started.task_id)).timeout_ms == raised_ms == next_timeout_ms(timeout_ms, "TIMEOUT", 700_000)
        )


async def test_fail_with_no_retries_left_makes_a_dead_letter(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, max_retries=0)

    state = await kit.fail(started)

    task = await kit.read(started.task_id)
    assert (state, task.state, task.reason) == ("dead_letter", TaskState.DEAD_LETTER, Reason.RETRIES_EXHAUSTED)
    assert (task.retry_count, task.visible_at_ms) == (0, None)
    assert await kit.client.zscore(kit.keys.key("dead"), started.task_id) == task.ended_at_ms
    await kit.assert_sound()


async def test_fail_costs_one_retry_each_until_they_are_spent(kit: Kit) -> None:
    await kit.worker()
    await kit.submit(max_retries=2)
    states: list[str] = []

    for _ in range(3):
        states.append(await kit.fail(await kit.started()))
        await kit.clock.advance(60_000)

    assert states == ["queued", "queued", "dead_letter"]


async def test_fail_called_not_retriable_goes_straight_to_failed(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    state = await kit.fail(started, verdict="fail")

    task = await kit.read(started.task_id)
    assert (state, task.state, task.reason) == ("failed", TaskState.FAILED, Reason.NOT_RETRIABLE)
    assert task.retry_count == 0
    await kit.assert_sound()


async def test_fail_with_discard_makes_a_dead_letter_whatever_retries_are_left(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    state = await kit.fail(started, verdict="discard")

    task = await kit.read(started.task_id)
    assert (state, task.state, task.reason) == ("dead_letter", TaskState.DEAD_LETTER, Reason.DISCARDED)
    await kit.assert_sound()


async def test_fail_keeps_the_error_also_while_the_retry_waits(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()

    await kit.fail(await kit.started(), error=b'{"message":"first"}')
    await kit.clock.advance(60_000)
    again = await kit.started()
    await kit.fail(again, error=b'{"message":"second"}')

    assert (await kit.read(again.task_id)).errors == (b'{"message":"first"}', b'{"message":"second"}')


async def test_fail_keeps_the_errors_of_the_last_twenty_attempts_and_counts_all(kit: Kit) -> None:
    await kit.worker()
    task_id = await kit.submit(max_retries=100, backoff=Backoff(base_ms=0))

    for number in range(25):
        await kit.fail(await kit.started(), error=str(number).encode())

    kept = await kit.read(task_id)
    assert (kept.errors, kept.error_count) == (tuple(str(number).encode() for number in range(5, 25)), 25)


async def test_fail_tells_history_with_the_error(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.fail(started, error=b'{"message":"no"}')

    told = (await events(kit, started.task_id))[-1]
    assert (told.state, told.reason, told.body) == ("queued", "error", b'{"message":"no"}')


@pytest.mark.parametrize(("verdict", "state"), [("retry", "queued"), ("fail", "failed"), ("discard", "dead_letter")])
async def test_fail_repeated_is_answered_alike_and_changes_nothing(kit: Kit, verdict: str, state: str) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.fail(started, verdict=verdict)
    before = await kit.dump()

    assert await kit.fail(started, verdict=verdict) == state

    assert await kit.dump() == before


async def test_fail_repeated_while_the_retry_runs_is_answered_alike(kit: Kit) -> None:
    await kit.worker()
    first = await task_in(kit, TaskState.EXECUTING)
    await kit.fail(first)
    await kit.clock.advance(12_000)
    await kit.started()
    before = await kit.dump()

    assert await kit.fail(first) == "queued"

    assert await kit.dump() == before


async def test_fail_after_a_retry_was_scheduled_with_another_error_is_stale(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.fail(started)
    before = await kit.dump()

    with pytest.raises(StaleLease):
        await kit.fail(started, error=b"another")

    assert await kit.dump() == before


async def test_fail_after_completion_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.COMPLETED)
    before = await kit.dump()

    with pytest.raises(WrongState) as refusal:
        await kit.fail(started)

    assert refusal.value.state == "completed"
    assert await kit.dump() == before
    assert len(await terminal_events(kit, started.task_id)) == 1


async def test_fail_with_an_error_too_large_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    before = await kit.dump()

    with pytest.raises(PayloadTooLarge):
        await kit.fail(started, error=b"x" * 65_537)

    assert await kit.dump() == before


async def test_fail_of_an_unknown_task_is_refused(kit: Kit) -> None:
    (outcome,) = await kit.attempts.fail("w1", [Failure(NEVER_MADE_ID, "1-a-1", b"{}")])

    assert isinstance(outcome.error, TaskNotFound)
