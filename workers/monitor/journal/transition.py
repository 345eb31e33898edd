"""One transition, and the phases of the task's life that it ended.

Everything comes from the event itself: its record holds the times at which the task was queued, assigned and started.
So any monitor can publish any transition without earlier events. Fields stay bytes until they are read.
"""

import functools
import operator
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from tideq.queue_core.outbox.monitor_cursor import UNKNOWN
from tideq.queue_core.outbox.reader import ID_LENGTH, OutboxEntry
from tideq.queue_core.scripts.record import NAMES, UnreadableRecord, record_fields, without_number
from tideq.queue_core.states import Reason, TaskState, reason_named, state_named
from tideq.queue_core.task import TraceContext
from tideq.queue_core.telemetry.names import (
    SPAN_ASSIGNED,
    SPAN_BACKOFF,
    SPAN_EXECUTING,
    SPAN_LIFECYCLE,
    SPAN_QUEUED,
    SPAN_SCHEDULED,
)
from tideq.queue_core.telemetry.trace_context import execution_span_id, is_sampled, lifecycle_span_id, trace_id_of
from tideq.queue_core.transitions import TERMINAL

STATE, VERSION, LANE, VISIBLE, AGE_BUCKET = map(NAMES.index, ("state", "version", "lane", "visible_ms", "age_bucket"))
ATTEMPT, LEASE, WORKER, REASON = map(NAMES.index, ("attempt", "lease", "worker", "reason"))
ASSIGNED, STARTED, ENDED = map(NAMES.index, ("assigned_ms", "started_ms", "ended_ms"))
RETRIES, LOSSES, DELIVERIES = map(NAMES.index, ("retries", "losses", "deliveries"))
CREATED, ELIGIBLE, QUEUED = map(NAMES.index, ("created_ms", "eligible_ms", "queued_ms"))

STATES = {state.encode(): state for state in TaskState}
REASONS = {reason.encode(): reason for reason in Reason} | {b"": Reason.SUBMITTED}

WORD = re.compile(rb"[a-z_]{1,64}")
"""The form of states and reasons, also of later versions."""
AT_ANY_TIME = (Reason.CANCELLED, Reason.RELEASED, Reason.PURGED, Reason.RETRIED)
"""Reasons whose source state is not fixed: the record has it, or for a manual retry the event."""
FROM = {
    **{reason.encode(): TaskState.EXECUTING for reason in Reason if reason not in AT_ANY_TIME},
    b"": "",
    b"submitted": "",
    b"claimed": TaskState.QUEUED,
    b"started": TaskState.ASSIGNED,
    b"assignment_lapsed": TaskState.ASSIGNED,
    b"never_started": TaskState.ASSIGNED,
    b"replayed": TaskState.DEAD_LETTER,
}
"""Keyed by bytes: hashing an enumeration member runs Python code."""
RETURNS_ATTEMPT_NUMBER = (b"assignment_lapsed", b"never_started", b"released")
REQUIRED = (VERSION, ATTEMPT, RETRIES, LOSSES, DELIVERIES, CREATED)
required_fields = operator.itemgetter(*REQUIRED)
number_fields = operator.itemgetter(*REQUIRED, VISIBLE, ASSIGNED, STARTED, ENDED, ELIGIBLE, QUEUED)
"""Required numbers, and with them the optional ones. One getter each: the check runs for every event."""
ENDS = {state.encode() for state in TERMINAL}


class Phase(NamedTuple):
    """A finished part of a task's life. The name is one of `telemetry.LIFE_SPANS`."""

    name: str
    began_ms: int
    ended_ms: int

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.began_ms) / 1000


class ObservedError(msgspec.Struct, frozen=True):
    """The published part of an error document; details may be anything."""

    message: str = ""
    code: str = ""


decode_error = msgspec.json.Decoder(ObservedError).decode


class ObservedTransition:
    """Decodes fields on access: an instance is made for every event of a busy queue."""

    __slots__ = ("_body", "_record", "_requeued_from", "at_ms", "hidden_until_ms", "origin", "task_key", "task_type")

    def __init__(
        self, task_key: bytes, at_ms: int, record: list[bytes], body: bytes | None, requeued_from: bytes = b""
    ) -> None:
        self.task_key = task_key
        self.at_ms = at_ms
        self.task_type = ""
        self.hidden_until_ms: int | None = None
        """For a retry whose backoff ended now: the end of its hidden time."""
        self.origin = UNKNOWN
        """Set only if a listener has `wants_origins`."""
        self._record = record
        self._body = body
        self._requeued_from = requeued_from

    @property
    def task_id(self) -> str:
        return self.task_key.decode()

    @property
    def state(self) -> TaskState:
        """The new state."""
        state = self._record[STATE]
        return STATES.get(state) or state_named(state.decode())

    @property
    def reason(self) -> Reason:
        reason = self._record[REASON]
        return REASONS.get(reason) or reason_named(reason.decode())

    @property
    def source(self) -> str:
        """The previous state.

        Empty for a new task and for a reason of a later version.
        """
        record = self._record
        source = FROM.get(record[REASON])
        if source is not None:
            return source
        if record[REASON] == b"purged":
            return self.state
        if record[REASON] == b"retried":
            return self._requeued_from.decode()
        if not record[LEASE] and record[REASON] == b"cancelled":
            return TaskState.QUEUED
        if record[REASON] not in REASONS:
            return ""
        return TaskState.EXECUTING if record[STARTED] else TaskState.ASSIGNED

    @property
    def trace(self) -> TraceContext | None:
        return self.origin.trace

    @property
    def trace_id(self) -> str:
        return trace_id_of(self.task_id, self.trace and self.trace.traceparent)

    @property
    def span_id(self) -> str:
        """Id of the execution span that it began or ended, else of the lifecycle span.

        Without sampling, the last digits of the task id: computing span ids would take half the time of a log line.
        """
        if self.trace is None or not is_sampled(self.trace.traceparent):
            return self.task_id[19:23] + self.task_id[24:]
        if self._record[STATE] == b"executing" or self.source is TaskState.EXECUTING:
            return execution_span_id(self.task_id, self.attempt)
        return lifecycle_span_id(self.task_id, self.life)

    @property
    def age_ms(self) -> int:
        """Time since the task became eligible: submitted, scheduled for, retried or replayed."""
        return max(self.at_ms - int(self._record[ELIGIBLE] or self._record[CREATED]), 0)

    @property
    def version(self) -> int:
        return int(self._record[VERSION])

    @property
    def lane(self) -> str:
        return self._record[LANE].decode()

    @property
    def lane_at_ms(self) -> int:
        """The last instant at which the lane number certainly belonged to the task's type."""
        return int(self._record[ENDED] or self.at_ms)

    @property
    def attempt(self) -> int:
        """The attempt concerned, also where it returned its number because it never started."""
        number = int(self._record[ATTEMPT])
        gave_back = self._record[REASON] in RETURNS_ATTEMPT_NUMBER and self.source is TaskState.ASSIGNED
        return number + 1 if gave_back else number

    @property
    def worker_id(self) -> str:
        """Worker of the current or last attempt; empty before the first."""
        return self._record[WORKER].decode()

    @property
    def priority(self) -> str:
        return _priority(self._record[AGE_BUCKET])

    @property
    def retry_count(self) -> int:
        return int(self._record[RETRIES])

    @property
    def loss_count(self) -> int:
        return int(self._record[LOSSES])

    @property
    def delivery_count(self) -> int:
        return int(self._record[DELIVERIES])

    @property
    def life(self) -> str:
        """Distinguishes the lives of a task: when it became eligible, by submission, retry or replay."""
        return self._record[ELIGIBLE].lstrip(b"0").decode()

    @property
    def created_ms(self) -> int:
        """Submission of the task's first life."""
        return int(self._record[CREATED])

    @property
    def is_requeued(self) -> bool:
        """Whether this life began with a manual retry or replay, not with a submission (also of a scheduled task)."""
        return self._record[ELIGIBLE][:1] == b"0"

    @property
    def has_requeue_span(self) -> bool:
        """Whether a span was recorded for the retry or replay that began this life; two leading zeros mean so."""
        return self._record[ELIGIBLE][:2] == b"00"

    @property
    def is_end(self) -> bool:
        return self._record[STATE] in ENDS and self._record[REASON] != b"purged"

    @property
    def error(self) -> ObservedError | None:
        """The error of the execution that this transition ended."""
        if self._body is None or self._record[STATE] == b"completed":
            return None
        try:
            return decode_error(self._body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ObservedError()

    @property
    def step_key(self) -> tuple[str, str, bytes, bytes, bytes]:
        """Fields that many transitions share: type, priority, state, reason and worker."""
        record = self._record
        return self.task_type, self.priority, record[STATE], record[REASON], record[WORKER]

    @property
    def phases(self) -> list[Phase]:
        """The phases it ended, in order; the whole life last.

        Not cached although metrics and spans both use it: caching cost 3 µs of 29 a task where there is no tracing.
        """
        phases = list[Phase]()
        source = self.source
        if source is TaskState.EXECUTING and self._record[STARTED]:
            phases.append(Phase(SPAN_EXECUTING, int(self._record[STARTED]), self.at_ms))
        elif source is TaskState.ASSIGNED and self._record[ASSIGNED]:
            phases.append(Phase(SPAN_ASSIGNED, int(self._record[ASSIGNED]), self.at_ms))
        elif source is TaskState.QUEUED:
            phases += self._waits()
        if self.is_end and self._record[ENDED]:
            began_ms = int(self._record[ELIGIBLE if self.is_requeued else CREATED])
            phases.append(Phase(SPAN_LIFECYCLE, began_ms, int(self._record[ENDED])))
        return phases

    def _waits(self) -> Iterator[Phase]:
        """The hidden phase, if any, then the ready phase."""
        began_ms = int(self._record[QUEUED] or self._record[CREATED])
        is_first = not self._record[QUEUED]
        hidden = int(self._record[ELIGIBLE] or 0) if is_first else self.hidden_until_ms or 0
        ready_ms = min(max(hidden, began_ms), self.at_ms)
        if ready_ms > began_ms:
            yield Phase(SPAN_SCHEDULED if is_first else SPAN_BACKOFF, began_ms, ready_ms)
        if not hidden or hidden < self.at_ms or self.state == TaskState.ASSIGNED:
            yield Phase(SPAN_QUEUED, ready_ms, self.at_ms)

    @property
    def begins_backoff(self) -> bytes:
        """End of the hidden time, if this transition hid the task for a retry; else empty."""
        return self._record[VISIBLE] if self._record[STATE] == b"queued" and self._record[QUEUED] else b""

    @property
    def may_end_backoff(self) -> bool:
        """Whether the journal may hold the end of the task's hidden time; most tasks were never retried."""
        was_hidden = self._record[RETRIES] != b"0" or self._record[LOSSES] != b"0"
        return was_hidden and (self._record[STATE] == b"assigned" or bool(self._record[ENDED]))


@functools.lru_cache(maxsize=1_024)
def _priority(age_bucket: bytes) -> str:
    """Cached: tasks of one minute share a bucket."""
    return age_bucket.rpartition(b":")[0].decode()


def transitions_in(entry: OutboxEntry) -> list[ObservedTransition]:
    """Returns the transitions in order. Raises UnreadableRecord, also where only one record is unreadable."""
    fields, at_ms = entry.fields, int(entry.fields[b"now_ms"])
    transitions = list[ObservedTransition]()
    for task_key in entry.event_names:
        if not task_key.isascii():
            raise UnreadableRecord("the key of an event is not a task id")
        record = _fields(fields[task_key])
        requeued_from = _requeued_from(fields.get(task_key + b":from", b"")) if record[REASON] == b"retried" else b""
        body = fields.get(task_key + b":body")
        transitions.append(ObservedTransition(task_key, at_ms, record, body, requeued_from))
    return transitions


def _requeued_from(state: bytes) -> bytes:
    if state and not WORD.fullmatch(state):
        raise UnreadableRecord("the previous state in an event is not a word")
    return state


def readable_transitions_in(
    entry: OutboxEntry, skip: Callable[[str, bytes, Exception], None]
) -> Iterator[ObservedTransition]:
    """Yields the readable transitions; calls `skip` for each of the others."""
    shared = {name: value for name, value in entry.fields.items() if len(name) != ID_LENGTH}
    for name in entry.event_names:
        try:
            yield from transitions_in(OutboxEntry(entry.entry_id, {**shared, name: entry.fields[name]}))
        except (KeyError, ValueError) as error:
            skip(entry.entry_id, name, error)


def _fields(packed: bytes) -> list[bytes]:
    fields = without_number(packed).split(b"\0")
    if len(fields) != len(NAMES) + 1 or not packed.isascii():
        fields = [field.encode() for field in record_fields(packed.decode())]
    if not (all(required_fields(fields)) and b"".join(number_fields(fields)).isdigit()):
        raise UnreadableRecord("a numeric field of a record is not a number")
    for word in (fields[STATE], fields[REASON]):
        if word not in STATES and word not in REASONS and not WORD.fullmatch(word):
            raise UnreadableRecord("the state or the reason of a record is not a word")
    return fields
