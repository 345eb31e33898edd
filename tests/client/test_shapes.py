"""The client's own models beside the service's: all that the service says is read, all that it takes can be sent."""

from typing import Any, get_type_hints

import msgspec
import pytest

from tideq.api.schemas.attempts import TaskErrorIn
from tideq.api.schemas.events import EventOut, GapOut
from tideq.api.schemas.fleet import DrainOut, WorkerOut, WorkersOut
from tideq.api.schemas.history import (
    DeadLetterOut,
    DeadLettersOut,
    DeletedOut,
    PatternOut,
    RecordedTaskOut,
    ReplayedOut,
    TasksOut,
    TransitionOut,
)
from tideq.api.schemas.queue import (
    DepthOut,
    FleetOut,
    LimitOut,
    LimitsOut,
    PauseOut,
    RecoveryOut,
    StatsOut,
    ThroughputOut,
    TotalsOut,
)
from tideq.api.schemas.submission import SubmitIn, SubmittedOut
from tideq.api.schemas.tasks import BackoffOut, CancelOut, ExplanationOut, ProgressOut, PurgedOut, RetryOut, TaskOut
from tideq.api.schemas.workers import ClaimedOut
from tideq.client.calls import events, submission
from tideq.client.calls.base import segment
from tideq.client.encoding import encode
from tideq.client.errors import FieldProblem, InvalidRequest, Problem
from tideq.client.models import dead_letters, pulled, queue, tasks

SAME: list[tuple[type[msgspec.Struct], type[msgspec.Struct]]] = [
    (TaskOut, tasks.Task),
    (RecordedTaskOut, tasks.Task),
    (SubmittedOut, tasks.Submitted),
    (ProgressOut, tasks.Progress),
    (BackoffOut, tasks.Backoff),
    (TransitionOut, tasks.StateChange),
    (CancelOut, tasks.Cancelled),
    (PurgedOut, tasks.Purged),
    (DeletedOut, tasks.CleanedUp),
    (RetryOut, tasks.Retried),
    (ExplanationOut, tasks.Explanation),
    (TasksOut, tasks.TaskPage),
    (TaskErrorIn, tasks.TaskError),
    (DeadLetterOut, dead_letters.DeadLetter),
    (DeadLettersOut, dead_letters.DeadLetterPage),
    (PatternOut, dead_letters.Pattern),
    (ReplayedOut, dead_letters.Replayed),
    (StatsOut, queue.QueueStats),
    (DepthOut, queue.Depth),
    (TotalsOut, queue.Totals),
    (FleetOut, queue.Fleet),
    (ThroughputOut, queue.Throughput),
    (RecoveryOut, queue.Recovery),
    (PauseOut, queue.Paused),
    (LimitOut, queue.Limit),
    (LimitsOut, queue.Limits),
    (WorkerOut, queue.WorkerInfo),
    (WorkersOut, queue.WorkerPage),
    (DrainOut, queue.Drained),
    (EventOut, events.Transition),
    (GapOut, events.Gap),
    (ClaimedOut, pulled.PulledTask),
]


@pytest.mark.parametrize(("told", "read"), SAME, ids=lambda kind: kind.__name__)
def test_everything_the_service_tells_is_read(told: type[msgspec.Struct], read: type[msgspec.Struct]) -> None:
    names = {field.encode_name for field in msgspec.structs.fields(read)}

    assert {field.encode_name for field in msgspec.structs.fields(told)} <= names


def test_everything_the_service_takes_can_be_submitted() -> None:
    taken = {field.encode_name for field in msgspec.structs.fields(SubmitIn)}

    assert {field.name for field in msgspec.structs.fields(tasks.NewTask)} == taken


def test_options_of_a_submission_are_those_of_a_task() -> None:
    options, task = get_type_hints(tasks.TaskOptions), get_type_hints(tasks.NewTask)

    assert {name: task[name] for name in options} == options
    assert task.keys() - options.keys() == {"task_type", "parameters"}


def test_what_is_left_out_is_not_sent() -> None:
    assert encode(tasks.NewTask("resize")) == b'{"task_type":"resize"}'


def test_added_and_missing_fields_are_no_matter() -> None:
    body = b'{"task_id":"t","task_type":"x","status":"dreaming","created_at":"2026-03-02T09:15:00Z","colour":"red"}'

    task = msgspec.json.decode(body, type=tasks.Task)

    assert (task.status, task.is_done, task.result, task.parameters) == ("dreaming", False, None, None)


class TestBatches:
    def test_they_are_cut_by_number(self) -> None:
        cut = list(submission.batches(tasks.NewTask("x") for _ in range(2_001)))

        assert [(batch.first, len(batch.bodies)) for batch in cut] == [(0, 1_000), (1_000, 1_000), (2_000, 1)]

    def test_they_are_cut_by_size(self) -> None:
        large = tasks.NewTask("x", {"text": "x" * 4_000_000})

        cut = list(submission.batches([large] * 7))

        assert [(batch.first, len(batch.bodies)) for batch in cut] == [(0, 3), (3, 3), (6, 1)]
        assert all(sum(map(len, batch.bodies)) < submission.MAX_BATCH_BYTES for batch in cut)

    def test_one_that_is_too_large_goes_alone(self) -> None:
        small, huge = tasks.NewTask("x"), tasks.NewTask("x", {"text": "x" * submission.MAX_BATCH_BYTES})

        assert [len(batch.bodies) for batch in submission.batches([small, huge, small])] == [1, 1, 1]

    @pytest.mark.parametrize("key", ["ü", 'a"b', "a\nb", "a\\b"])
    def test_a_key_no_header_can_hold_is_refused(self, key: str) -> None:
        with pytest.raises(ValueError, match="idempotency key"):
            submission.key_header(key)

    @pytest.mark.parametrize(
        ("pointer", "placed"), [("/tasks/3/run_at", "/tasks/1003/run_at"), ("/tasks", "/tasks"), ("/x/3", "/x/3")]
    )
    def test_pointers_are_placed_where_the_caller_counts(self, pointer: str, placed: str) -> None:
        error = InvalidRequest(Problem(errors=(FieldProblem(pointer, "wrong"),)))

        submission.shift_pointers(error, 1_000)

        assert error.fields == (FieldProblem(placed, "wrong"),)


@pytest.mark.parametrize(("value", "path"), [("a b", "a%20b"), ("..", "%2E%2E"), ("a/b", "a%2Fb"), ("a-1", "a-1")])
def test_a_segment_stays_one(value: str, path: str) -> None:
    assert segment("task_id", value) == path


@pytest.mark.parametrize(
    "value", [{"a": None, "b": 1.5}, [None, "null"], ("null", {"x": {1, 2}}), tasks.NewTask("null")]
)
def test_a_null_that_is_meant_is_taken(value: Any) -> None:
    assert encode(value)
