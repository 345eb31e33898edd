"""The queue's time where the store's clock is stepped: it never runs backwards, stands still or believes a glitch."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.contract.situations import claimed_ids, submit_count
from tests.kit import Kit
from tideq.queue_core.states import TaskState

SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


async def now_of(kit: Kit) -> int:
    return (await kit.insight.stats()).now_ms


async def write(kit: Kit) -> int:
    """The instant of one script that keeps what it learnt of the clock."""
    await kit.queue.sweep()
    return int(await kit.client.hget(kit.keys.key("meta"), "now_ms"))


async def kept(kit: Kit) -> tuple[float, float] | None:
    """The last reading, and how far time was ahead of it; nothing while time is what the clock says."""
    note = await kit.client.hget(kit.keys.key("meta"), "clock")
    if note is None:
        return None
    reading, ahead, *_ = note.decode().split()
    return float(reading), float(ahead)


async def step_back(kit: Kit, milliseconds: int) -> int:
    """A clock that was ahead for one script and is set right; returns the instant of that script."""
    await kit.clock.advance(milliseconds)
    at = await write(kit)
    await kit.clock.advance(-milliseconds)
    return at


@pytest.mark.parametrize("step_ms", [5, SECOND_MS, HOUR_MS, YEAR_MS])
async def test_time_after_a_step_back_goes_on_at_nine_tenths_of_the_clock(kit: Kit, step_ms: int) -> None:
    before = await step_back(kit, step_ms)
    at_first = after = await write(kit)
    read_before = await kept(kit)

    for _ in range(5):
        await kit.clock.advance(4 * SECOND_MS)
        after = await write(kit)

    assert before <= at_first <= after - 18 * SECOND_MS
    read_after = await kept(kit)
    if read_before and read_after:
        assert after - at_first == pytest.approx(0.9 * (read_after[0] - read_before[0]), abs=1)


async def test_time_after_a_small_step_back_is_the_clocks_again(kit: Kit) -> None:
    await step_back(kit, 5 * SECOND_MS)
    await write(kit)

    for _ in range(6):
        await kit.clock.advance(10 * SECOND_MS)
        await write(kit)

    assert await kept(kit) is None
    assert (await kit.insight.stats()).clock_ahead_ms == 0


async def test_time_that_is_ahead_comes_closer_with_every_call_however_many_there_are(kit: Kit) -> None:
    """Rounded to whole milliseconds, a call a millisecond would keep the difference for ever, or time where it is."""
    await step_back(kit, MINUTE_MS)
    await write(kit)
    first = await kept(kit)

    for _ in range(50):
        await kit.clock.advance(1)
        await write(kit)

    last = await kept(kit)
    assert first is not None
    assert last is not None
    assert first[1] - last[1] == pytest.approx(0.1 * (last[0] - first[0]), abs=0.1)


async def test_time_is_carried_over_one_step_after_the_other(kit: Kit) -> None:
    reached = await step_back(kit, HOUR_MS)

    for _ in range(3):
        await write(kit)
        await kit.clock.advance(-MINUTE_MS)
        await write(kit)
        await kit.clock.advance(2 * SECOND_MS)
        now = await write(kit)
        assert now >= reached + 1.8 * SECOND_MS
        reached = now


@pytest.mark.parametrize("step_ms", [MINUTE_MS, HOUR_MS, YEAR_MS])
async def test_time_that_is_ahead_is_the_clocks_when_the_clock_is_put_right(kit: Kit, step_ms: int) -> None:
    await write(kit)
    await kit.clock.advance(-step_ms)
    before = await write(kit)

    await kit.clock.advance(step_ms)

    assert 0 <= await write(kit) - before < 2 * SECOND_MS
    assert await kept(kit) is None


async def test_a_clock_that_is_put_right_in_part_moves_time_by_seconds(kit: Kit) -> None:
    await write(kit)
    await kit.clock.advance(-HOUR_MS)
    before = await write(kit)

    await kit.clock.advance(HOUR_MS // 2)

    assert 0 <= await write(kit) - before < 6 * SECOND_MS


async def test_no_lease_ends_because_the_clock_was_corrected(kit: Kit) -> None:
    await kit.worker()
    await kit.submit("t")
    await kit.queue.claim("w1", assignment_ms=30 * SECOND_MS)
    await kit.clock.advance(-HOUR_MS)
    await write(kit)

    await kit.clock.advance(HOUR_MS)

    assert await kit.queue.sweep() == 0


async def test_time_goes_on_in_a_long_silence(kit: Kit) -> None:
    await step_back(kit, HOUR_MS)
    before = await write(kit)

    await kit.clock.advance(MINUTE_MS)

    assert await write(kit) - before >= 4 * SECOND_MS


async def test_stats_tell_how_far_time_is_ahead_of_the_clock(kit: Kit) -> None:
    assert (await kit.insight.stats()).clock_ahead_ms == 0

    await step_back(kit, HOUR_MS)

    assert (await kit.insight.stats()).clock_ahead_ms == pytest.approx(HOUR_MS, abs=MINUTE_MS)


# What waits for an instant


async def delay(kit: Kit) -> None:
    await kit.submit("t", delay_ms=SECOND_MS)


async def lease(kit: Kit) -> None:
    await kit.submit("t")
    await kit.queue.claim("w1", assignment_ms=SECOND_MS)


async def execution(kit: Kit) -> None:
    await kit.submit("t", timeout_ms=SECOND_MS)
    await kit.started()


async def heartbeat(kit: Kit) -> None:
    await kit.submit("t")
    await kit.started()


async def limit(kit: Kit) -> None:
    await kit.controls.limit(task_type="t", tasks_per_second=5)
    await submit_count(kit, 5, task_type="t")
    await kit.queue.claim("w1", 5, assignment_ms=HOUR_MS)
    await kit.submit("t")
    assert await claimed_ids(kit) == []


@pytest.mark.parametrize(("begin", "seconds"), [(delay, 2), (lease, 2), (execution, 16), (heartbeat, 102), (limit, 2)])
async def test_a_step_back_of_an_hour_holds_nothing_up(
    kit: Kit, begin: Callable[[Kit], Awaitable[None]], seconds: int
) -> None:
    await step_back(kit, HOUR_MS)
    await kit.worker()
    await kit.worker("w2")
    await begin(kit)

    for _ in range(0, seconds, 2):
        await kit.clock.advance(2 * SECOND_MS)
        await kit.queue.sweep()
        await kit.fleet.heartbeat("w2")

    assert (await kit.queue.claim("w2", 1)).tasks


async def test_what_began_before_a_step_back_ends_no_sooner(kit: Kit) -> None:
    await kit.worker()
    await kit.submit("t")
    await kit.queue.claim("w1", assignment_ms=30 * SECOND_MS)
    await kit.clock.advance(-HOUR_MS)
    assert await kit.queue.sweep() == 0

    for _ in range(6):
        await kit.clock.advance(4 * SECOND_MS)
        assert await kit.queue.sweep() == 0

    for _ in range(4):
        await kit.clock.advance(4 * SECOND_MS)
        await kit.queue.sweep()
    assert (await kit.queue.claim("w1")).tasks


# Jumps


async def fall_behind(kit: Kit, milliseconds: int) -> int:
    """As if the last script had run so long ago by the clock; returns its instant."""
    now = await write(kit)
    await kit.client.hset(kit.keys.key("meta"), "now_ms", now - milliseconds)
    return now - milliseconds


async def let_doubt_age(kit: Kit, milliseconds: int) -> None:
    meta = kit.keys.key("meta")
    reading, ahead, since = (await kit.client.hget(meta, "clock")).decode().split()
    await kit.client.hset(meta, "clock", f"{reading} {ahead} {int(since) - milliseconds}")


async def test_a_jump_of_less_than_an_hour_is_believed_at_once(kit: Kit) -> None:
    before = await fall_behind(kit, HOUR_MS - MINUTE_MS)

    assert await write(kit) - before >= HOUR_MS - MINUTE_MS


async def test_a_jump_of_more_than_an_hour_is_believed_when_it_is_read_again_seconds_later(kit: Kit) -> None:
    before = await fall_behind(kit, YEAR_MS)

    assert 0 <= await write(kit) - before < MINUTE_MS
    assert (await kit.insight.stats()).clock_ahead_ms < -HOUR_MS
    assert 0 <= await write(kit) - before < MINUTE_MS

    await let_doubt_age(kit, 2 * SECOND_MS)
    assert await write(kit) - before >= YEAR_MS
    assert await kept(kit) is None


async def test_time_goes_on_while_a_jump_is_in_doubt(kit: Kit) -> None:
    before = await fall_behind(kit, YEAR_MS)
    await write(kit)
    meta = kit.keys.key("meta")
    reading, ahead, since = map(float, (await kit.client.hget(meta, "clock")).decode().split())

    await kit.client.hset(meta, "clock", f"{reading - 1_500:.0f} {ahead + 1_500:.1f} {since:.0f}")

    assert await write(kit) - before >= 1_500


async def test_a_jump_that_is_read_once_leaves_no_trace(kit: Kit) -> None:
    """The store as such a reading leaves it: time went on, and the reading is in doubt."""
    now = await write(kit)
    glitch = now + YEAR_MS
    await kit.client.hset(kit.keys.key("meta"), "clock", f"{glitch} {-YEAR_MS}.0 {glitch}")

    assert 0 <= await write(kit) - now < MINUTE_MS
    assert await kept(kit) is None


async def test_open_waits_until_a_jump_is_no_longer_in_doubt(kit: Kit) -> None:
    before = await fall_behind(kit, YEAR_MS)
    opening = asyncio.ensure_future(kit.queue.open())
    while await kept(kit) is None:
        await asyncio.sleep(0.01)
    assert not opening.done()

    await let_doubt_age(kit, 2 * SECOND_MS)
    await opening

    task = await kit.read(await kit.submit())
    assert task.created_at_ms - before >= YEAR_MS


# Epochs


async def enter(kit: Kit, least_now_ms: int, grace_ms: int) -> None:
    reply = await kit.engine.scripts.call(
        "enter_epoch",
        present_epoch="1",
        next_epoch="2",
        first_format=3,
        identity="run",
        least_now_ms=least_now_ms,
        least_lanes_version=0,
        heartbeat_grace_ms=grace_ms,
    )
    assert reply.word == "OK"
    kit.engine.scripts.epoch = "2"


async def test_an_epoch_that_begins_ahead_of_the_clock_goes_on_from_there(kit: Kit) -> None:
    least_ms = await now_of(kit) + HOUR_MS

    await enter(kit, least_ms, 0)

    assert await write(kit) >= least_ms
    await kit.clock.advance(4 * SECOND_MS)
    assert await write(kit) - least_ms >= 3.6 * SECOND_MS


async def test_workers_have_time_from_the_instant_an_epoch_begins_at(kit: Kit) -> None:
    await kit.worker()
    task_id = await kit.submit()
    await kit.started()

    await enter(kit, await now_of(kit) + HOUR_MS, 90 * SECOND_MS)

    assert await kit.queue.sweep() == 1, "the deadline of the task itself has passed"
    await kit.queue.claim("w1")
    assert (await kit.read(task_id)).state is TaskState.QUEUED
    assert (await kit.insight.stats()).workers.active == 1
