"""sweep: what fell due comes back. lapse, time_out: assigned, executing -> queued | dead_letter."""

import msgspec
import pytest

from tests.contract.situations import claimed_ids, events, started_count, submit_count, task_content, task_in
from tests.kit import Kit
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Stop

MINUTE_MS = 60_000
DAY_MS = 86_400_000


async def test_sweep_with_nothing_due_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    await task_in(kit, TaskState.EXECUTING)
    await task_in(kit, TaskState.ASSIGNED)
    await kit.submit(delay_ms=1_000)
    before = await kit.dump()

    assert await kit.queue.sweep() == 0

    assert await kit.dump() == before


async def test_sweep_makes_a_task_whose_delay_is_over_ready_without_a_transition(kit: Kit) -> None:
    task_id = await kit.submit(delay_ms=MINUTE_MS)
    await kit.clock.advance(MINUTE_MS)

    assert await kit.queue.sweep() == 1

    task = await kit.read(task_id)
    assert (task.state, task.version, task.lane_position) == (TaskState.QUEUED, 1, 0)
    assert task.rank == task.eligible_at_ms + 100_000_000


async def test_sweep_twice_moves_nothing_the_second_time(kit: Kit) -> None:
    await kit.worker()
    await submit_count(kit, 10)
    await kit.queue.claim("w1", 10)
    await kit.clock.advance(30_000)
    await kit.queue.sweep()
    before = await kit.dump()

    assert await kit.queue.sweep() == 0

    assert await kit.dump() == before


# Lapse


async def test_lapse_costs_a_delivery_and_nothing_else(kit: Kit) -> None:
    await kit.worker()
    claimed = await task_in(kit, TaskState.ASSIGNED)
    rank = (await kit.read(claimed.task_id)).rank
    await kit.clock.advance(30_000)

    assert await kit.queue.sweep() == 1

    task = await kit.read(claimed.task_id)
    assert (task.state, task.reason, task.rank) == (TaskState.QUEUED, Reason.ASSIGNMENT_LAPSED, rank)
    assert (task.deliveries, task.retry_count, task.losses, task.attempt) == (1, 0, 0, 0)
    assert task.lane_position == 0


async def test_lapse_happens_at_the_assignment_timeout_and_not_before(kit: Kit) -> None:
    await kit.worker()
    await task_in(kit, TaskState.ASSIGNED)

    await kit.clock.advance(29_000)
    early = await kit.queue.sweep()
    await kit.clock.advance(1_000)
    due = await kit.queue.sweep()

    assert (early, due) == (0, 1)


async def test_lapse_for_the_tenth_time_makes_a_dead_letter(kit: Kit) -> None:
    await kit.worker()
    task_id = await kit.submit()

    for _ in range(9):
        await kit.claimed()
        await kit.clock.advance(30_000)
        await kit.queue.sweep()
    ninth = await kit.read(task_id)
    await kit.claimed()
    await kit.clock.advance(30_000)
    await kit.queue.sweep()

    task = await kit.read(task_id)
    assert (ninth.state, ninth.deliveries) == (TaskState.QUEUED, 9)
    assert (task.state, task.reason, task.deliveries) == (TaskState.DEAD_LETTER, Reason.NEVER_STARTED, 10)
    assert (await kit.insight.stats()).dead_letter_count == 1
    await kit.assert_sound()


# Time-out


async def test_time_out_costs_a_retry_and_waits_out_a_backoff(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=MINUTE_MS)
    rank = (await kit.read(started.task_id)).rank
    await kit.clock.advance(MINUTE_MS)

    assert await kit.queue.sweep() == 1

    task = await kit.read(started.task_id)
    assert (task.state, task.reason, task.rank) == (TaskState.QUEUED, Reason.TIMED_OUT, rank)
    assert (task.retry_count, task.losses, task.deliveries) == (1, 0, 0)
    assert 8_000 <= (task.visible_at_ms or 0) - task.state_since_ms <= 12_000


async def test_time_out_raises_the_next_attempts_timeout_by_half(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=MINUTE_MS)
    await kit.clock.advance(MINUTE_MS)
    await kit.queue.sweep()
    await kit.clock.advance(12_000)

    assert (await kit.claimed()).timeout_ms == 90_000
    assert started.timeout_ms == MINUTE_MS


async def test_time_out_keeps_an_error_that_says_so(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=MINUTE_MS)
    await kit.clock.advance(MINUTE_MS)
    await kit.queue.sweep()

    (error,) = (await kit.read(started.task_id)).errors
    assert b'"code":"TIMEOUT"' in error
    assert (await events(kit, started.task_id))[-1].body == error


async def test_time_out_tells_the_worker_to_stop_that_attempt(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=MINUTE_MS)
    await kit.clock.advance(MINUTE_MS)
    await kit.queue.sweep()

    assert (await kit.fleet.heartbeat("w1")).stops == (Stop(started.task_id, started.lease),)


async def test_time_out_with_no_retries_left_makes_a_dead_letter(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=MINUTE_MS, max_retries=0)
    await kit.clock.advance(MINUTE_MS)
    await kit.queue.sweep()

    task = await kit.read(started.task_id)
    assert (task.state, task.reason) == (TaskState.DEAD_LETTER, Reason.RETRIES_EXHAUSTED)
    await kit.assert_sound()


async def test_time_out_spreads_what_timed_out_together(kit: Kit) -> None:
    await kit.worker()
    tasks = await started_count(kit, 50, timeout_ms=MINUTE_MS)
    await kit.clock.advance(MINUTE_MS)
    await kit.queue.sweep()

    read = await kit.queue.read_many([task.task_id for task in tasks])
    assert len({task.visible_at_ms for task in read if task is not None}) > 25


# Bounds


async def test_sweep_moves_a_bounded_number_a_script(kit: Kit) -> None:
    await submit_count(kit, 25, delay_ms=1_000)
    await kit.clock.advance(1_000)

    reply = await kit.engine.scripts.call("sweep", limit=10)

    assert reply.details[0] == 10
    assert (await kit.insight.stats()).due_count == 15


async def test_sweep_repeats_until_nothing_is_due(kit: Kit) -> None:
    task_ids = await submit_count(kit, 250, delay_ms=1_000)
    await kit.worker()
    await kit.clock.advance(1_000)

    assert await kit.queue.sweep() == 250

    assert (await kit.insight.stats()).due_count == 0
    assert await claimed_ids(kit) == task_ids


async def test_sweep_repeats_until_every_silent_worker_is_given_up(kit: Kit) -> None:
    for number in range(5):
        await kit.worker(f"idle{number}")
    await kit.worker("busy")
    await started_count(kit, 3, "busy")
    await kit.clock.advance(90_000)

    await kit.queue.sweep()

    assert (await kit.insight.stats()).workers.dead == 6
    assert (await kit.insight.stats()).by_state["executing"] == 0


# Tidying


async def test_sweep_lists_dead_letters_for_thirty_days(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    await kit.engine.partition.acknowledge("0-1", [(dead.task_id, (await kit.read(dead.task_id)).version)])

    await kit.clock.advance(30 * DAY_MS - MINUTE_MS)
    await kit.queue.sweep()
    kept = (await kit.insight.stats()).dead_letter_count
    await kit.clock.advance(MINUTE_MS)
    await kit.queue.sweep()

    assert (kept, (await kit.insight.stats()).dead_letter_count) == (1, 0)


async def test_sweep_drops_statistics_nobody_asks_for_any_more(kit: Kit) -> None:
    await kit.worker()
    await task_in(kit, TaskState.COMPLETED)
    await kit.clock.advance(2 * 3_600_000)
    await kit.fleet.heartbeat("w1")

    await kit.queue.sweep()

    assert await kit.client.hlen(kit.keys.key("recent")) == 0


async def test_sweep_lifts_pauses_that_have_ended_and_no_others(kit: Kit) -> None:
    now_ms = (await kit.insight.stats()).now_ms
    await kit.controls.pause("resize", resume_at_ms=now_ms + 1_000)
    await kit.controls.pause("crop", resume_at_ms=now_ms + 100_000)
    await kit.controls.pause()
    await kit.clock.advance(1_000)

    await kit.queue.sweep()

    assert (await kit.insight.stats()).controls.keys() == {"*", "crop"}


async def test_sweep_forgets_dead_workers_after_an_hour(kit: Kit) -> None:
    await kit.worker()
    await kit.clock.advance(90_000)
    await kit.queue.sweep()

    await kit.clock.advance(3_600_001)
    await kit.queue.sweep()

    assert (await kit.insight.stats()).workers.dead == 0
    assert await task_content(kit) == {}


async def test_timeouts_of_one_sweep_come_back_earlier_and_later_than_their_base_delay(kit: Kit) -> None:
    await kit.worker(capacity=200)
    started = await started_count(kit, 100, timeout_ms=1_000)
    await kit.clock.advance(2_000)

    await kit.queue.sweep()

    tasks = [await kit.read(each.task_id) for each in started]
    delays = [(task.visible_at_ms or 0) - task.state_since_ms for task in tasks]
    assert min(delays) < 9_500
    assert max(delays) > 10_500


class TestClientRates:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        admission = msgspec.structs.replace(Admission(), client_rate_per_second=10, client_burst=10)
        return QueueSettings(admission=admission)

    async def test_sweep_forgets_the_rates_of_clients_that_have_all_their_tokens_again(self, kit: Kit) -> None:
        for number in range(5):
            await kit.submit(client_id=f"client{number}")
        await kit.clock.advance(1_000)
        await kit.submit(client_id="busy")
        await kit.clock.stop()

        await kit.queue.sweep()

        assert await kit.client.hkeys(kit.keys.key("buckets")) == [b"client:busy"]


async def test_lanes_of_capabilities_that_polls_named_are_not_kept_for_ever(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    for number in range(5):
        await kit.queue.claim("w1", 1, capabilities=[f"c{number}"])

    assert 0 < await kit.client.pttl(kit.keys.key("served_lanes")) <= 60 * MINUTE_MS

    await kit.queue.claim("w1", 1, capabilities=["another"])
    assert await kit.client.hlen(kit.keys.key("served_lanes")) == 6
