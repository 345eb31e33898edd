"""One line a transition, whatever names are in it, and nothing of what tasks carry."""

import contextlib
import json
import os
import pty
import subprocess
import sys

import pytest

from tests.contract.situations import task_in
from tests.kit import Kit
from tests.telemetry.listening import follow, follower
from tideq.queue_core.outbox.reader import OutboxEntry
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.states import TaskState
from tideq.queue_core.store.formats import NEWEST_FORMAT
from tideq.queue_core.task import TraceContext
from tideq.queue_core.telemetry.trace_context import execution_span_id, lifecycle_span_id
from tideq.queue_core.transitions import transition
from tideq.workers.monitor.journal.transition import ObservedTransition, transitions_in
from tideq.workers.monitor.journal.transition_log import LineWriter, TransitionLog

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE = TraceContext(f"00-{TRACE_ID}-00f067aa0ba902b7-01")
HOSTILE = 'a\n{"event":"transition"}\r\x1b[2J\x9b31m\u2028\u202e\x85\x00b'
LOGGING = f"""
import structlog
from tideq.cli.logging import log_to_stderr
log_to_stderr()
structlog.get_logger().warning({HOSTILE!r}, name={HOSTILE!r})
"""


async def test_a_line_says_who_did_what_and_why(kit: Kit) -> None:
    written = list[str]()
    made = await follower(kit, TransitionLog(written.append, readable=False))
    await kit.worker()
    task_id = await kit.submit("resize", trace=TRACE, client_id="shop", parameters=b'{"card":"4111"}')
    await kit.clock.advance(45_000)
    await kit.fail(await kit.started(), error=b'{"message":"card 4111","code":"BROKEN"}')

    await follow(made)

    lines = "".join(written).splitlines()
    first, claimed, started, last = map(json.loads, lines)
    execution, life = execution_span_id(task_id, 1), lifecycle_span_id(task_id, "")
    assert [each["span_id"] for each in (first, claimed, started, last)] == [life, life, execution, execution]
    assert [each["age_seconds"] // 45 for each in (first, claimed, started, last)] == [0, 1, 1, 1]
    assert last.pop("timestamp") > first["timestamp"]
    last["age_seconds"] = 45
    assert last == {
        "event": "transition",
        "level": "info",
        "task_id": task_id,
        "trace_id": TRACE_ID,
        "span_id": execution,
        "task_type": "resize",
        "priority": "medium",
        "client_id": "shop",
        "worker_id": "w1",
        "attempt": 1,
        "retry_count": 1,
        "age_seconds": 45,
        "from_state": "executing",
        "to_state": "queued",
        "reason": "error",
    }
    assert "4111" not in "".join(written)


async def test_a_line_readable_says_the_same_but_for_span_and_priority(kit: Kit) -> None:
    written = list[str]()
    made = await follower(kit, TransitionLog(written.append, readable=True))
    await kit.worker()
    task_id = await kit.submit("resize", trace=TRACE, client_id="shop")
    await kit.clock.advance(45_000)
    await kit.fail(await kit.started())

    await follow(made)

    first, *_, last = [line.split() for line in "".join(written).splitlines()]
    assert first[1:5] == [task_id, "·", "→", "queued"]
    assert "worker=-" in first
    assert last[1:7] == [task_id, "executing", "→", "queued", "error", "resize"]
    told = dict(word.split("=") for word in last[7:])
    assert 45 <= float(told.pop("age").removesuffix("s")) < 105
    assert told == {"attempt": "1", "retries": "1", "client": "shop", "worker": "w1", "trace": TRACE_ID}


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("readable", [True, False])
def test_a_line_gives_its_instant_in_utc_wherever_the_process_lives(readable: bool) -> None:
    written, made = list[str](), hostile()
    made.at_ms = 1_772_442_000_042

    TransitionLog(written.append, readable=readable).observe([made])

    assert "2026-03-02T09:00:00.042Z" in "".join(written)


async def test_a_line_has_a_trace_also_where_the_task_came_without_one(kit: Kit) -> None:
    written = list[str]()
    made = await follower(kit, TransitionLog(written.append, readable=False))
    task_id = await kit.submit()

    await follow(made)

    line, digits = json.loads(written[0]), task_id.replace("-", "")
    assert (line["trace_id"], line["span_id"]) == (digits, digits[16:])


async def test_every_state_in_the_lines_is_one_that_tasks_are_in(kit: Kit) -> None:
    """Whatever became of them: none is `finished`."""
    written = list[str]()
    made = await follower(kit, TransitionLog(written.append, readable=False))
    await kit.worker()
    for state in TaskState:
        task = await task_in(kit, state)
        if transition("retry").allows(state):
            await kit.queue.retry(task.task_id)
        if state is not TaskState.COMPLETED:
            await kit.queue.cancel(task.task_id)

    await follow(made)

    lines = [json.loads(line) for line in "".join(written).splitlines()]
    assert {line["from_state"] for line in lines} == {"", *TaskState} - {"completed"}
    assert {line["to_state"] for line in lines} == {*TaskState}


@pytest.mark.parametrize("readable", [True, False])
def test_hostile_names_stay_on_their_line(readable: bool) -> None:
    written = list[str]()

    TransitionLog(written.append, readable=readable).observe([hostile(), hostile()])

    (text,) = written
    assert len(text.splitlines()) == 2
    assert all(line.isprintable() for line in text.splitlines())


def hostile() -> ObservedTransition:
    fields = dict.fromkeys(NAMES, "")
    fields |= {
        "state": "assigned",
        "version": "2",
        "attempt": "1",
        **dict.fromkeys(("retries", "losses", "deliveries"), "0"),
        "created_ms": "1",
        "worker": HOSTILE.replace("\0", ""),
        "lease": "1-a-1",
    }
    record = "".join(f"{value}\0" for value in (NEWEST_FORMAT, *fields.values())).encode() + b"\0"
    entry = OutboxEntry("1-1", {b"now_ms": b"1", b"0195546e-3c7a-7d21-9f04-00a1b2c3d4e5": record})
    (made,) = transitions_in(entry)
    made.task_type = HOSTILE
    return made


def test_logs_are_json_where_nobody_looks() -> None:
    ended = subprocess.run([sys.executable, "-c", LOGGING], capture_output=True, text=True, check=True)

    (line,) = ended.stderr.splitlines()
    assert json.loads(line)["name"] == HOSTILE
    assert line.isprintable()


def test_logs_are_readable_on_a_terminal_and_cannot_steer_it() -> None:
    reader, writer = pty.openpty()
    subprocess.run([sys.executable, "-c", LOGGING], stderr=writer, check=True)
    os.close(writer)

    said = os.read(reader, 65_536).decode()
    os.close(reader)

    assert not said.startswith("{")
    assert "name" in said
    assert said.count("\n") == 1
    assert "\x1b[2J" not in said
    assert not {"\x9b", "\u2028", "\u202e", "\x85", "\0"} & set(said)


def test_a_pipe_nobody_empties_stops_nobody() -> None:
    (reader, end), dropped_count = os.pipe(), 0
    with contextlib.suppress(BrokenPipeError), os.fdopen(end, "w") as stream, LineWriter(stream) as writer:
        for _ in range(3_000):
            writer.write("x" * 1_000 + "\n")
        dropped_count = writer.dropped_count
        os.close(reader)

    assert dropped_count >= 1_000
