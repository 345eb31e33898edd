"""Two sweepers over one set of due tasks do what one would have done."""

import uuid
from collections import Counter

from tests.kit import Kit, make_kit
from tests.races.outbox import audit, steps
from tests.races.racing import ROUNDS, Sides, assert_contested
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.task import NewTask

LAPSED, TIMED_OUT, SPENT, LOST = 250, 150, 150, 50
DUE = LAPSED + TIMED_OUT + SPENT + LOST
ORDINARY = ("submitted", "claimed", "started")
EXPECTED = Counter(
    {
        ("queued", "assignment_lapsed"): LAPSED,
        ("queued", "timed_out"): TIMED_OUT,
        ("dead_letter", "retries_exhausted"): SPENT,
        ("queued", "worker_lost"): LOST,
    }
)


async def test_two_sweepers_make_the_same_events_as_one(sides: Sides) -> None:
    await _let_fall_due(sides.left)

    moved = await sides.race(sides.left.queue.sweep(limit=2), sides.right.queue.sweep(limit=2))

    left, right = moved
    assert isinstance(left, int)
    assert isinstance(right, int)
    assert left + right == DUE
    assert min(left, right) > DUE // 10
    assert await _recoveries(sides.left) == EXPECTED == await _recoveries(await _swept_alone(sides.left))


async def test_sweepers_that_meet_on_a_single_due_task_move_it_once(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for _ in range(ROUNDS):
        (task,) = await sides.assigned(1)
        await sides.left.clock.advance(30_000)

        moved = await sides.race(sides.left.queue.sweep(), sides.right.queue.sweep())

        assert sorted(map(str, moved)) == ["0", "1"]
        assert (await sides.left.read(task.task_id)).deliveries == 1
        await sides.left.queue.cancel(task.task_id)
        wins["left" if moved[0] else "right"] += 1

    assert_contested(wins, "left", "right")
    assert {len(story) for story in (await audit(sides.left)).values()} == {4}


async def _let_fall_due(kit: Kit) -> None:
    """Of `w1`: assignments, executions with and without retries left; of `w2`, who falls silent: long executions."""
    await _claim(kit, "w2", LOST, timeout_ms=86_400_000)
    await kit.clock.advance(50_000)
    await _claim(kit, "w1", TIMED_OUT, max_retries=1, timeout_ms=20_000)
    await _claim(kit, "w1", SPENT, max_retries=0, timeout_ms=20_000)
    await _claim(kit, "w1", LAPSED, starts=False)
    await kit.clock.advance(45_000)
    await kit.fleet.heartbeat("w1")
    # From here on time stands still at that heartbeat, so that nothing else falls due while they sweep.
    await kit.clock.stop()


async def _claim(kit: Kit, worker_id: str, count: int, *, starts: bool = True, **fields: int) -> None:
    await kit.queue.submit_many([NewTask(task_type="resize", **fields)] * count)  # pyright: ignore[reportArgumentType]
    tasks = (await kit.queue.claim(worker_id, count)).tasks
    assert len(tasks) == count
    if starts:
        for outcome in await kit.attempts.start(worker_id, [LeaseRef(task.task_id, task.lease) for task in tasks]):
            outcome.unwrap()


async def _swept_alone(like: Kit) -> Kit:
    kit = await make_kit(like.client, uuid.uuid4().hex[:12], like.settings)
    await kit.worker("w1")
    await kit.worker("w2")
    await _let_fall_due(kit)
    assert await kit.queue.sweep(limit=2) == DUE
    return kit


async def _recoveries(kit: Kit) -> Counter[tuple[str, str]]:
    """What happened after the claims and starts, task by task checked for gaps."""
    happened = steps(await audit(kit, endings=None))
    return Counter({step: count for step, count in happened.items() if step[1] not in ORDINARY})
