"""What is kept for transitions of the same looks is what would be made of each of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.telemetry.recording import Recording
from tideq.queue_core.outbox.monitor_cursor import Origin
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import TraceContext
from tideq.queue_core.telemetry.spans import Span
from tideq.workers.monitor.journal.lifecycle_spans import LifecycleSpans
from tideq.workers.monitor.journal.memo import Memo
from tideq.workers.monitor.journal.transition import ObservedTransition

TRACE = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
CHOICES = {
    "state": [state.encode() for state in TaskState],
    "reason": [b"", *(reason.encode() for reason in Reason)],
    "attempt": [b"0", b"1"],
    "worker": [b"", b"w1", b"w2"],
    "lease": [b"", b"lease"],
    "started_ms": [b"", b"5", b"6"],
    "age_bucket": [b"medium:1", b"medium:2", b"high:1"],
    "queued_ms": [b"", b"3"],
    "version": [b"1", b"2"],
}
ALWAYS = {"assigned_ms": b"4", "created_ms": b"1", "ended_ms": b"9", "eligible_ms": b"2"}


def transition(number: int, task_type: str, chosen: dict[str, bytes]) -> ObservedTransition:
    record = [{**ALWAYS, **chosen}.get(name, b"0") for name in NAMES]
    made = ObservedTransition(f"0195546e-3c7a-7d21-9f04-{number:012x}".encode(), 9, record, b'{"code":"BROKEN"}')
    made.task_type, made.origin = task_type, Origin(TRACE)
    return made


chosen = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()})


def is_possible(each: ObservedTransition) -> bool:
    """What was executing had been started."""
    return each.source != TaskState.EXECUTING or bool(each._record[NAMES.index("started_ms")])  # pyright: ignore[reportPrivateUsage]


stories = st.lists(
    st.builds(transition, st.integers(0, 3), st.sampled_from(["a", 'b"']), chosen).filter(is_possible), max_size=30
)


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("name", CHOICES)
def test_two_that_differ_in_one_thing_are_told_apart(reason: Reason, name: str) -> None:
    common = {each: values[-1] for each, values in CHOICES.items()} | {"reason": reason.encode()}
    each_way = [transition(0, "a", {**common, name: value}) for value in CHOICES[name]]
    check_told_as_if_alone([each for each in each_way if is_possible(each)])


def test_types_are_told_apart() -> None:
    common = {each: values[-1] for each, values in CHOICES.items()}
    check_told_as_if_alone([transition(0, task_type, {**common, "reason": b"succeeded"}) for task_type in "ab"])


@given(stories)
def test_spans_are_told_as_if_there_were_no_others(transitions: list[ObservedTransition]) -> None:
    check_told_as_if_alone(transitions)


def check_told_as_if_alone(transitions: list[ObservedTransition]) -> None:
    together, apart = Recording(), Recording()

    LifecycleSpans(together, "default").observe(transitions)
    for each in transitions:
        LifecycleSpans(apart, "default").observe([each])

    assert [told(span) for span in together.spans] == [told(span) for span in apart.spans]


def told(span: Span) -> tuple[object, ...]:
    return span.name, span.attributes, span.context, span.parent_id, span.began_ns, span.ended_ns, span.error


def test_so_many_are_kept_and_no_more() -> None:
    made = list[str]()

    def note(each: ObservedTransition) -> str:
        made.append(each.task_type)
        return each.task_type

    alike = Memo(note, max_entries=2)
    for task_type in ("a", "a", "b", "c", "a"):
        assert alike(transition(0, task_type, {})) == task_type

    assert made == ["a", "b", "c", "a"]
