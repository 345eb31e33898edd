"""Every verb in every state it does not start from: refused by name, and nothing changed. Derived from TRANSITIONS."""

from collections.abc import Awaitable, Callable

import pytest

from tests.contract.situations import events, held, task_content, task_in
from tests.kit import Kit
from tideq.queue_core.errors import StaleLease, WrongState
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import ClaimedTask, NewTask
from tideq.queue_core.transitions import TRANSITIONS, transition

Press = Callable[[Kit, ClaimedTask], Awaitable[object]]
EVERY_STATE = sorted(TaskState, key=lambda state: state is TaskState.QUEUED)
"""The waiting one last: what is made after it would wait behind it."""
PRESENTS_A_LEASE = ("start", "complete", "fail", "release")
REPEATED_START = ("start", TaskState.EXECUTING)
"""Saying again what was accepted is answered like the first time: not a refusal, and no change either."""


async def release(kit: Kit, task: ClaimedTask) -> None:
    (await kit.attempts.release("w1", held(task)))[0].unwrap()


async def silence(kit: Kit, milliseconds: int) -> None:
    await kit.clock.advance(milliseconds)
    await kit.queue.sweep()


async def outlast(kit: Kit, milliseconds: int) -> None:
    """Time passes while the worker goes on sending heartbeats."""
    for _ in range(0, milliseconds, 60_000):
        await kit.clock.advance(60_000)
        await kit.fleet.heartbeat("w1")
    await kit.queue.sweep()


ASKED: dict[str, Press] = {
    "start": lambda kit, task: kit.start(task),
    "complete": lambda kit, task: kit.complete(task, result=b'"another"'),
    "fail": lambda kit, task: kit.fail(task, error=b'"another"'),
    "release": release,
    "cancel": lambda kit, task: kit.queue.cancel(task.task_id),
    "retry": lambda kit, task: kit.queue.retry(task.task_id),
    "replay": lambda kit, task: kit.queue.replay(task.task_id),
}
"""Verbs that name their task."""

FOUND: dict[str, Press] = {
    "claim": lambda kit, task: kit.queue.claim("w1", 10),
    "lapse": lambda kit, task: silence(kit, 30_000),
    "time_out": lambda kit, task: outlast(kit, 600_000),
    "lose": lambda kit, task: silence(kit, 90_000),
}
"""Verbs that look for the tasks they may move."""


def refusing_states(verb: str) -> list[TaskState]:
    return [state for state in EVERY_STATE if not transition(verb).allows(state)]


def test_every_verb_is_tried() -> None:
    assert {move.verb for move in TRANSITIONS} == {"submit", *ASKED, *FOUND}


@pytest.mark.parametrize("verb", ASKED)
async def test_a_verb_in_a_state_it_does_not_start_from_changes_nothing(kit: Kit, verb: str) -> None:
    await kit.worker()

    for state in refusing_states(verb):
        if (verb, state) == REPEATED_START:
            continue
        task = await task_in(kit, state)
        before = await kit.dump()
        has_a_dead_lease = verb in PRESENTS_A_LEASE and state is TaskState.QUEUED

        with pytest.raises((StaleLease, WrongState)) as refusal:
            await ASKED[verb](kit, task)

        assert type(refusal.value) is (StaleLease if has_a_dead_lease else WrongState), state
        assert (refusal.value.task_id, refusal.value.state) == (task.task_id, state)
        assert await kit.dump() == before
        await kit.assert_sound()


async def test_a_start_repeated_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    task = await task_in(kit, TaskState.EXECUTING)
    before = await kit.dump()

    await ASKED["start"](kit, task)

    assert await kit.dump() == before


@pytest.mark.parametrize("verb", FOUND)
async def test_a_verb_that_finds_its_tasks_passes_by_all_others(kit: Kit, verb: str) -> None:
    await kit.worker()
    tasks = [await task_in(kit, state) for state in refusing_states(verb) if state is not TaskState.ASSIGNED]
    before = await task_content(kit)

    await FOUND[verb](kit, tasks[0])

    assert await task_content(kit) == before
    await kit.assert_sound()


@pytest.mark.parametrize("verb", [verb for verb in FOUND if TaskState.ASSIGNED in refusing_states(verb)])
async def test_an_assigned_task_never_pays_for_anything_but_its_lapse(kit: Kit, verb: str) -> None:
    await kit.worker()
    task = await task_in(kit, TaskState.ASSIGNED)
    told = len(await events(kit))

    await FOUND[verb](kit, task)

    assert {event.reason for event in (await events(kit))[told:]} <= {Reason.ASSIGNMENT_LAPSED}
    read = await kit.read(task.task_id)
    assert (read.retry_count, read.losses) == (0, 0)


async def test_a_submission_under_a_known_id_changes_nothing_in_any_state(kit: Kit) -> None:
    await kit.worker()

    for state in EVERY_STATE:
        task = await task_in(kit, state)
        before = await kit.dump()

        again = await kit.queue.submit(NewTask(task_type="other", task_id=task.task_id))

        assert (again.task_id, again.is_new) == (task.task_id, False)
        assert await kit.dump() == before
