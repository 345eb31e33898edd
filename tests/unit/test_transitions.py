"""The state machine as data: complete, and the same everywhere it is told."""

from tideq.queue_core.scripts.runner import LUA
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.transitions import LIVE, TERMINAL, TRANSITIONS, is_legal


def test_terminal_states_are_those_no_ordinary_verb_leaves() -> None:
    assert {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED, TaskState.DEAD_LETTER} == TERMINAL
    assert {TaskState.QUEUED, TaskState.ASSIGNED, TaskState.EXECUTING} == LIVE


def test_every_state_can_be_reached_and_every_live_one_left() -> None:
    assert {target for move in TRANSITIONS for target in move.targets} == set(TaskState)
    assert {source for move in TRANSITIONS for source in move.sources} >= LIVE


def test_nothing_leaves_completed() -> None:
    assert not any(is_legal(TaskState.COMPLETED, target) for target in TaskState)


def test_every_verb_has_its_script_and_the_script_says_the_same() -> None:
    for move in TRANSITIONS:
        first_line = (LUA / f"{move.script}.lua").read_text().splitlines()[0]
        for state in (*move.sources, *move.targets):
            assert state in first_line, f"{move.verb}: {first_line}"


def test_every_state_and_reason_is_explained() -> None:
    import inspect

    from tideq.queue_core import states

    source = inspect.getsource(states)
    for member in (*TaskState, *Reason):
        assert f'{member.name} = "{member.value}"\n    """' in source
