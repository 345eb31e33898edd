"""Old work is overtaken only within the difference of the offsets, and gets its rank back whatever became of it."""

from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from tests.kit import Kit
from tests.order.bench import Bench, examples
from tests.order.line import OFFSET_MS
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.states import Reason
from tideq.queue_core.task import ClaimedTask, NewTask, Submitted, WorkerDeclaration

LOW_MS = OFFSET_MS["low"]


@examples(40)
@given(
    later=st.sampled_from(["high", "medium"]),
    gap_ms=st.integers(0, 2 * LOW_MS) | st.integers(LOW_MS - 2_000, LOW_MS) | st.integers(LOW_MS // 2 - 2_000, LOW_MS),
)
@example(later="high", gap_ms=LOW_MS)
@example(later="medium", gap_ms=LOW_MS // 2)
def test_low_work_goes_before_all_that_comes_once_its_offset_ran_out(bench: Bench, later: str, gap_ms: int) -> None:
    async def play(kit: Kit) -> None:
        await kit.worker(capacity=10)
        low = await kit.queue.submit(NewTask(task_type="resize", priority="low"))
        await kit.clock.advance(gap_ms)
        urgent = await kit.queue.submit(NewTask(task_type="resize", priority=later))

        first = (await kit.claimed()).task_id

        is_overtaken = urgent.now_ms - low.now_ms < LOW_MS - OFFSET_MS[later]
        assert first == (urgent if is_overtaken else low).task_id

    bench.run(play)


async def test_under_a_flood_of_high_work_low_work_waits_for_what_came_within_its_offset_only(kit: Kit) -> None:
    """Two come for each that goes: without ageing the low one would wait for ever."""
    await kit.worker()
    low = await kit.queue.submit(NewTask(task_type="resize", priority="low"))
    floods: list[Submitted] = []
    served: list[str] = []

    while low.task_id not in served:
        floods += await kit.queue.submit_many([NewTask(task_type="resize", priority="high")] * 2)
        served.append((await kit.claimed(assignment_ms=10**11)).task_id)
        await kit.clock.advance(10_000_000)
        assert len(served) <= 100

    within = [flood.task_id for flood in floods if flood.now_ms - low.now_ms < LOW_MS]
    assert len(floods) > len(within) == 40
    assert served == [*within, low.task_id]


class Setback(NamedTuple):
    """Something that befalls a claimed task, and the fields it needs to be submitted with."""

    reason: Reason
    fields: dict[str, int]


LAPSE = Setback(Reason.ASSIGNMENT_LAPSED, {})
FAIL = Setback(Reason.ERROR, {"max_retries": 3})
TIME_OUT = Setback(Reason.TIMED_OUT, {"max_retries": 3, "timeout_ms": 20_000})
LOSE = Setback(Reason.WORKER_LOST, {"timeout_ms": 80_000_000})
RELEASE = Setback(Reason.RELEASED, {})

ORDERED = st.tuples(st.sampled_from(list(OFFSET_MS)), st.integers(-(10**8), 10**8))


@examples(50)
@given(
    fates=st.lists(st.tuples(st.sampled_from([LAPSE, FAIL, TIME_OUT, LOSE, RELEASE]), ORDERED), min_size=1, max_size=9),
    others=st.lists(ORDERED, max_size=6),
    wanted=st.integers(1, 20),
)
def test_what_comes_back_regains_its_old_rank(
    bench: Bench, fates: list[tuple[Setback, tuple[str, int]]], others: list[tuple[str, int]], wanted: int
) -> None:
    async def play(kit: Kit) -> None:
        submitted = await kit.queue.submit_many([_task(ordered, setback.fields) for setback, ordered in fates])
        due_ms = {answer.task_id: _turn(answer, fate[1]) for answer, fate in zip(submitted, fates, strict=True)}
        await _suffer(kit, {answer.task_id: fate[0] for answer, fate in zip(submitted, fates, strict=True)})
        for ordered in others:
            answer = await kit.queue.submit(_task(ordered, {}))
            due_ms[answer.task_id] = _turn(answer, ordered)

        # Long enough for every backoff and every stagger.
        await kit.clock.advance(60_000)
        await kit.worker("second", capacity=20)
        got: list[str] = []
        while claim := (await kit.queue.claim("second", wanted)).tasks:
            got += [task.task_id for task in claim]

        assert sorted(got) == sorted(due_ms)
        assert got == sorted(got, key=lambda task_id: (due_ms[task_id], task_id))

    bench.run(play)


def _task(ordered: tuple[str, int], fields: dict[str, int]) -> NewTask:
    return NewTask(task_type="resize", priority=ordered[0], head_start_ms=ordered[1], **fields)  # pyright: ignore[reportArgumentType]


def _turn(answer: Submitted, ordered: tuple[str, int]) -> int:
    """When its `offset − age` is zero: all fall at one speed, so this orders them at every instant."""
    return answer.now_ms + OFFSET_MS[ordered[0]] - ordered[1]


async def _suffer(kit: Kit, fates: dict[str, Setback]) -> None:
    """Every task is claimed by one worker and meets its fate; 91 seconds later that worker is dead."""
    await kit.fleet.register(WorkerDeclaration(worker_id="first", capacity=20))
    for task in (await kit.queue.claim("first", len(fates))).tasks:
        await _meet(kit, task, fates[task.task_id])
    for seconds in (31, 60):
        await kit.clock.advance(seconds * 1_000)
        await kit.queue.sweep()
    for task_id, setback in fates.items():
        assert (await kit.read(task_id)).reason == setback.reason


async def _meet(kit: Kit, task: ClaimedTask, setback: Setback) -> None:
    if setback is not LAPSE:
        await kit.start(task, "first")
    if setback is FAIL:
        await kit.fail(task, "first")
    if setback is RELEASE:
        (await kit.attempts.release("first", [LeaseRef(task.task_id, task.lease)]))[0].unwrap()
