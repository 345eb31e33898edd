"""The checker of trees finds each fault that Jaeger has a warning for, and nothing in a tree without one."""

from dataclasses import replace

import pytest

from tests.telemetry.jaeger import complaints
from tests.telemetry.sink import Seen

TRACE, SENDER = "1" * 32, "2" * 16


def span(name: str, number: int, parent_id: str, began_ns: int, ended_ns: int, kind: int = 1) -> Seen:
    ids = {"trace_id": TRACE, "span_id": f"{number:016x}", "parent_id": parent_id}
    return Seen(
        name=name,
        kind=kind,
        began_ns=began_ns,
        ended_ns=ended_ns,
        **ids,
        attributes={},
        is_error=False,
        events=[],
        service="tideq",
        scope="tideq",
        host="here",
        links=[],
    )


REQUEST = span("POST", 1, SENDER, 0, 90, kind=2)
SENT = span("send", 2, REQUEST.span_id, 10, 80, kind=4)
QUEUED = span("task.queued", 3, SENT.span_id, 20, 500)
PROCESS = span("process", 4, SENT.span_id, 500, 550, kind=5)
TREE = [REQUEST, SENT, QUEUED, PROCESS]


def test_a_sound_tree_is_taken_without_a_word() -> None:
    assert complaints(TREE) == []


@pytest.mark.parametrize(
    ("faulty", "words"),
    [
        (replace(QUEUED, ended_ns=20), "task.queued: negative duration, or none"),
        (replace(QUEUED, ended_ns=19), "task.queued: negative duration, or none"),
        (replace(QUEUED, parent_id="f" * 16), "task.queued: invalid parent span id"),
        (replace(QUEUED, trace_id="3" * 32), "task.queued: invalid parent span id"),
        (replace(QUEUED, host=""), "task.queued: host unknown"),
        (replace(QUEUED, links=[(TRACE, "f" * 16)]), "task.queued: links to ffffffffffffffff, which nobody told"),
        (
            replace(QUEUED, links=[("3" * 32, SENT.span_id)]),
            "task.queued: links to 0000000000000002, which nobody told",
        ),
        (replace(QUEUED, began_ns=9), "task.queued under send: begins 1 ns before it"),
        (replace(PROCESS, host="there"), "process under send: clock skew"),
        (replace(QUEUED, span_id=SENT.span_id, parent_id=REQUEST.span_id), "duplicate span id"),
    ],
)
def test_each_fault_is_found(faulty: Seen, words: str) -> None:
    tree = [faulty if each.name == faulty.name else each for each in TREE]

    assert any(complaint.startswith(words) for complaint in complaints(tree))


def test_a_link_to_what_somebody_told_is_taken_without_a_word() -> None:
    linked = replace(QUEUED, links=[(TRACE, PROCESS.span_id), ("3" * 32, "f" * 16)])

    assert complaints([REQUEST, SENT, linked, PROCESS], outside={"f" * 16}) == []


def test_between_hosts_what_takes_longer_may_end_later() -> None:
    assert complaints([REQUEST, SENT, replace(QUEUED, host="there")]) == []
