"""retry: failed | dead_letter | cancelled -> queued; replay: dead_letter -> queued."""

import pytest

from tests.contract.situations import NEVER_MADE_ID, claimed_ids, events, started_count, submit_count, task_in
from tests.kit import Kit
from tideq.queue_core.errors import (
    RankOutOfRange,
    StaleLease,
    TaskNotFound,
    TooManyNewLanes,
    UnknownPriority,
    WrongState,
)
from tideq.queue_core.partition import KeptTask
from tideq.queue_core.score import MAX_RANK
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.submission import pack_definition
from tideq.queue_core.transitions import transition

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


async def kept_by_history(kit: Kit, task_id: str) -> KeptTask:
    """The task as history has it, after it has left the store: acknowledged, and an hour gone by."""
    task = await kit.read(task_id)
    record = (await events(kit, task_id))[-1].packed
    await kit.engine.partition.acknowledge("0-1", [(task_id, task.version)])
    await kit.clock.advance(HOUR_MS)
    await kit.fleet.heartbeat("w1")
    await kit.queue.sweep()
    assert await kit.queue.read_many([task_id]) == [None]
    return KeptTask(record, pack_definition(task.definition))


@pytest.mark.parametrize("state", transition("retry").sources)
async def test_retry_queues_a_task_from_every_state_it_may(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    ended = await task_in(kit, state)
    before = await kit.read(ended.task_id)

    version = await kit.queue.retry(ended.task_id)

    task = await kit.read(ended.task_id)
    assert (task.state, task.reason) == (TaskState.QUEUED, Reason.RETRIED)
    assert version == task.version == before.version + 1
    assert (task.ended_at_ms, task.worker_id, task.lane_position) == (None, None, 0)
    await kit.assert_sound()


async def test_replay_queues_a_dead_letter_and_takes_it_off_the_list(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)

    await kit.queue.replay(dead.task_id)

    task = await kit.read(dead.task_id)
    assert (task.state, task.reason) == (TaskState.QUEUED, Reason.REPLAYED)
    assert (await kit.insight.stats()).dead_letter_count == 0


@pytest.mark.parametrize("verb", ["retry", "replay"])
async def test_a_revival_forgets_deliveries_that_lapsed(kit: Kit, verb: str) -> None:
    await kit.worker()
    task_id = await kit.submit()
    await kit.claimed()
    await kit.clock.advance(kit.settings.leases.assignment_ms)
    await kit.fail(await kit.started(), verdict="discard")
    before = await kit.read(task_id)

    await getattr(kit.queue, verb)(task_id)

    assert (before.deliveries, (await kit.read(task_id)).deliveries) == (1, 0)


async def test_replay_ranks_as_submitted_now(kit: Kit) -> None:
    await kit.worker()
    (dead,) = await started_count(kit, 1, priority="low", head_start_ms=7_000)
    await kit.fail(dead, verdict="discard")
    await kit.clock.advance(HOUR_MS)

    await kit.queue.replay(dead.task_id)

    task = await kit.read(dead.task_id)
    assert task.now_ms - task.eligible_at_ms < 1_000
    assert task.rank == task.eligible_at_ms + 200_000_000 - 7_000
    assert task.created_at_ms <= task.eligible_at_ms - HOUR_MS


async def test_replay_does_not_crowd_out_work_submitted_before_it(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    await kit.clock.advance(HOUR_MS)
    waiting = await kit.submit()
    await kit.clock.advance(1_000)

    await kit.queue.replay(dead.task_id)

    await kit.worker("w2")
    assert await claimed_ids(kit, "w2") == [waiting, dead.task_id]


async def test_replay_starts_with_fresh_budgets(kit: Kit) -> None:
    await kit.worker()
    await kit.submit(max_retries=1)
    await kit.fail(await kit.started())
    await kit.clock.advance(12_000)
    dead = await kit.started()
    await kit.fail(dead)

    await kit.queue.replay(dead.task_id)

    task = await kit.read(dead.task_id)
    assert (task.retry_count, task.losses, task.deliveries, task.max_retries) == (0, 0, 0, 1)
    assert await kit.fail(await kit.started()) == "queued"


async def test_replay_told_to_keep_budgets_keeps_them(kit: Kit) -> None:
    await kit.worker()
    await kit.submit(max_retries=1)
    await kit.fail(await kit.started())
    await kit.clock.advance(12_000)
    dead = await kit.started()
    await kit.fail(dead)

    await kit.queue.replay(dead.task_id, keeps_budgets=True)

    assert (await kit.read(dead.task_id)).retry_count == 1
    assert await kit.fail(await kit.started()) == "dead_letter"


async def test_replay_with_a_new_priority_takes_its_defaults(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)

    await kit.queue.replay(dead.task_id, priority="high")

    task = await kit.read(dead.task_id)
    assert (task.priority, task.max_retries, task.timeout_ms) == ("high", 5, 300_000)
    assert task.rank == task.eligible_at_ms
    assert (await kit.insight.stats()).by_priority == {"high": 1}


async def test_replay_with_an_unknown_priority_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    before = await kit.dump()

    with pytest.raises(UnknownPriority):
        await kit.queue.replay(dead.task_id, priority="urgentest")

    assert await kit.dump() == before


@pytest.mark.parametrize("verb", ["retry", "replay"])
async def test_revival_pressed_twice_is_refused_the_second_time(kit: Kit, verb: str) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    press = getattr(kit.queue, verb)
    await press(dead.task_id)
    before = await kit.dump()

    with pytest.raises(WrongState) as refusal:
        await press(dead.task_id)

    assert refusal.value.state == "queued"
    assert await kit.dump() == before


async def test_retry_makes_the_old_lease_stale_also_for_a_result_accepted_before(kit: Kit) -> None:
    await kit.worker()
    failed = await task_in(kit, TaskState.FAILED)
    await kit.queue.retry(failed.task_id)

    with pytest.raises(StaleLease):
        await kit.fail(failed, verdict="fail")


async def test_retry_forgets_the_progress_and_keeps_the_errors(kit: Kit) -> None:
    await kit.worker()
    failed = await task_in(kit, TaskState.FAILED)

    await kit.queue.retry(failed.task_id)

    task = await kit.read(failed.task_id)
    assert (task.result, task.progress) == (None, None)
    assert task.errors == (b'{"message":"no"}',)


async def test_retry_gives_the_next_attempt_a_number_of_its_own(kit: Kit) -> None:
    await kit.worker()
    failed = await task_in(kit, TaskState.FAILED)

    await kit.queue.retry(failed.task_id)

    assert (await kit.claimed()).attempt == failed.attempt + 1


async def test_retry_of_an_unknown_task_is_refused(kit: Kit) -> None:
    with pytest.raises(TaskNotFound):
        await kit.queue.retry(NEVER_MADE_ID)


# From history


async def test_replay_of_a_task_that_left_the_store_works_from_history(kit: Kit) -> None:
    await kit.worker()
    (dead,) = await started_count(kit, 1, parameters=b"[7]", required_capabilities=())
    await kit.fail(dead, verdict="discard")
    version = (await kit.read(dead.task_id)).version
    kept = await kept_by_history(kit, dead.task_id)

    assert await kit.queue.replay(dead.task_id, kept=kept) == version + 1

    task = await kit.read(dead.task_id)
    assert (task.state, task.definition.parameters) == (TaskState.QUEUED, b"[7]")
    assert (await kit.claimed()).task_id == dead.task_id


async def test_replay_from_history_tells_history_the_next_version(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    kept = await kept_by_history(kit, dead.task_id)

    await kit.queue.replay(dead.task_id, kept=kept)

    versions = [event.record.number("version") for event in await events(kit, dead.task_id)]
    assert versions == [1, 2, 3, 4, 5]


async def test_replay_from_history_pressed_twice_makes_one_new_life(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    kept = await kept_by_history(kit, dead.task_id)
    await kit.queue.replay(dead.task_id, kept=kept)
    before = await kit.dump()

    with pytest.raises(WrongState):
        await kit.queue.replay(dead.task_id, kept=kept)

    assert await kit.dump() == before


async def test_replay_from_history_leaves_a_task_that_finished_since_alone(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    kept = await kept_by_history(kit, dead.task_id)
    await kit.queue.replay(dead.task_id, kept=kept)
    await kit.complete(await kit.started())

    with pytest.raises(WrongState) as refusal:
        await kit.queue.replay(dead.task_id, kept=kept)

    assert refusal.value.state == "completed"


async def test_replay_of_a_task_that_left_the_store_without_history_is_refused(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    await kept_by_history(kit, dead.task_id)

    with pytest.raises(TaskNotFound):
        await kit.queue.replay(dead.task_id)


async def test_replay_after_the_record_began_to_expire_keeps_it(kit: Kit) -> None:
    await kit.worker()
    dead = await task_in(kit, TaskState.DEAD_LETTER)
    await kit.engine.partition.acknowledge("0-1", [(dead.task_id, (await kit.read(dead.task_id)).version)])

    await kit.queue.replay(dead.task_id)
    await kit.clock.advance(2 * HOUR_MS)
    await kit.queue.sweep()

    assert (await kit.read(dead.task_id)).state is TaskState.QUEUED


class TestNewLanes:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=Admission(max_new_lanes_per_day=1))

    async def test_replay_from_history_that_may_open_no_lane_changes_nothing(self, kit: Kit) -> None:
        """All of it on one day, whatever the time is."""
        await kit.clock.advance(DAY_MS - (await kit.insight.stats()).now_ms % DAY_MS)
        await kit.worker()
        dead = await task_in(kit, TaskState.DEAD_LETTER)
        kept = await kept_by_history(kit, dead.task_id)
        await kit.client.hdel(kit.keys.key("lanes"), "resize|")
        before = await kit.dump()

        with pytest.raises(TooManyNewLanes):
            await kit.queue.replay(dead.task_id, kept=kept, client_id="anonymous")

        assert await kit.dump() == before


async def test_retry_waits_its_turn_among_others(kit: Kit) -> None:
    await kit.worker()
    cancelled = await task_in(kit, TaskState.CANCELLED)
    waiting = await submit_count(kit, 3)
    await kit.clock.advance(1)

    await kit.queue.retry(cancelled.task_id)

    assert await claimed_ids(kit) == [*waiting, cancelled.task_id]


async def test_retry_that_would_rank_outside_its_band_is_refused_and_changes_nothing(kit: Kit) -> None:
    now_ms = (await kit.insight.stats()).now_ms
    task_id = await kit.submit(priority="high", head_start_ms=-(MAX_RANK - now_ms - 60_000))
    await kit.queue.cancel(task_id)
    await kit.clock.advance(120_000)
    before = await kit.dump()

    with pytest.raises(RankOutOfRange):
        await kit.queue.retry(task_id)

    assert await kit.dump() == before
