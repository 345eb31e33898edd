"""One transition, and the phases of the task's life that it ended.

Everything comes from the event itself: a record says when its task was queued, assigned and started. So any monitor can
tell any transition, without having seen those before. Fields stay bytes until somebody asks for them.
"""

import functools
import operator
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import structlog

from tideq.queue_core.engine.feed import Entry
from tideq.queue_core.engine.journal import UNKNOWN
from tideq.queue_core.engine.record import NAMES, SPLIT_COUNT, UnreadableRecord, record_fields
from tideq.queue_core.engine.replies import shown
from tideq.queue_core.states import Reason, TaskState, reason_named, state_named
from tideq.queue_core.task import TraceContext
from tideq.queue_core.telemetry import (
    SPAN_ASSIGNED,
    SPAN_BACKOFF,
    SPAN_EXECUTING,
    SPAN_LIFECYCLE,
    SPAN_QUEUED,
    SPAN_SCHEDULED,
)
from tideq.queue_core.trace_context import execution_span_id, is_sampled, lifecycle_span_id, trace_id_of
from tideq.queue_core.transitions import TERMINAL

STATE, VERSION, LANE, VISIBLE, AGE_BUCKET = map(NAMES.index, ("state", "version", "lane", "visible_ms", "age_bucket"))
ATTEMPT, LEASE, WORKER, REASON = map(NAMES.index, ("attempt", "lease", "worker", "reason"))
ASSIGNED, STARTED, ENDED = map(NAMES.index, ("assigned_ms", "started_ms", "ended_ms"))
RETRIES, LOSSES, DELIVERIES = map(NAMES.index, ("retries", "losses", "deliveries"))
CREATED, ELIGIBLE, QUEUED = map(NAMES.index, ("created_ms", "eligible_ms", "queued_ms"))

STATES = {state.encode(): state for state in TaskState}
REASONS = {reason.encode(): reason for reason in Reason} | {b"": Reason.SUBMITTED}

log = structlog.get_logger(__name__)
WORD = re.compile(rb"[a-z_]{1,64}")
"""As states and reasons of later versions will be."""
AT_ANY_TIME = (Reason.CANCELLED, Reason.RELEASED, Reason.PURGED, Reason.RETRIED)
"""The record says where these came from; of a retry by hand the event does."""
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
"""Found by the bytes of a reason: looking up a member of an enumeration calls Python code to hash it."""
GAVE_ITS_NUMBER_BACK = (b"assignment_lapsed", b"never_started", b"released")
NEEDED = (VERSION, ATTEMPT, RETRIES, LOSSES, DELIVERIES, CREATED)
needed_in = operator.itemgetter(*NEEDED)
reckoned_in = operator.itemgetter(*NEEDED, VISIBLE, ASSIGNED, STARTED, ENDED, ELIGIBLE, QUEUED)
"""What has to be a number, and with it what may be empty too. Looked at together: it is done for every event."""
ENDS = {state.encode() for state in TERMINAL}


Looks = tuple[str, str, bytes, bytes, bytes, bytes, bool]


class Phase(NamedTuple):
    """A part of a task's life that is over. Its name is one of `telemetry.LIFE_SPANS`."""

    name: str
    began_ms: int
    ended_ms: int

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.began_ms) / 1000


class TaskError(msgspec.Struct, frozen=True):
    """As much of an error document as is told: details may be anything."""

    message: str = ""
    code: str = ""


decode_error = msgspec.json.Decoder(TaskError).decode


class Transition:
    """Made for every event of a busy queue, so it reads what it is asked for and no more."""

    __slots__ = ("_body", "_record", "_revived_from", "at_ms", "hidden_until_ms", "origin", "task_key", "task_type")

    def __init__(
        self, task_key: bytes, at_ms: int, record: list[bytes], body: bytes | None, revived_from: bytes = b""
    ) -> None:
        self.task_key = task_key
        self.at_ms = at_ms
        self.task_type = ""
        self.hidden_until_ms: int | None = None
        """Until when a retry was hidden that has now ended its wait."""
        self.origin = UNKNOWN
        """Filled in where a listener wants it."""
        self._record = record
        self._body = body
        self._revived_from = revived_from

    @property
    def task_id(self) -> str:
        return self.task_key.decode()

    @property
    def state(self) -> TaskState:
        """Where it led."""
        state = self._record[STATE]
        return STATES.get(state) or state_named(state.decode())

    @property
    def reason(self) -> Reason:
        reason = self._record[REASON]
        return REASONS.get(reason) or reason_named(reason.decode())

    @property
    def source(self) -> str:
        """The state it came from.

        Empty for a new task, where only a later version knows the reason, and where an earlier one retried it by hand.
        """
        record = self._record
        known = FROM.get(record[REASON])
        if known is not None:
            return known
        if record[REASON] == b"purged":
            return self.state
        if record[REASON] == b"retried":
            return self._revived_from.decode()
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
        """Of the execution that it began or ended, else of the whole life.

        Where no spans are told, the last digits of the task's id: to work theirs out takes as long as half a line.
        """
        if self.trace is None or not is_sampled(self.trace.traceparent):
            return self.task_id[19:23] + self.task_id[24:]
        if self._record[STATE] == b"executing" or self.source is TaskState.EXECUTING:
            return execution_span_id(self.task_id, self.attempt)
        return lifecycle_span_id(self.task_id, self.life)

    @property
    def age_ms(self) -> int:
        """Since the task might run: was submitted, was scheduled for, or was sent back by hand."""
        return max(self.at_ms - int(self._record[ELIGIBLE] or self._record[CREATED]), 0)

    @property
    def version(self) -> int:
        return int(self._record[VERSION])

    @property
    def lane(self) -> str:
        return self._record[LANE].decode()

    @property
    def lane_at_ms(self) -> int:
        """The last instant at which the lane's number surely stood for the task's type."""
        return int(self._record[ENDED] or self.at_ms)

    @property
    def attempt(self) -> int:
        """The attempt it is about, also where that one gave its number back because it was never started."""
        number = int(self._record[ATTEMPT])
        gave_back = self._record[REASON] in GAVE_ITS_NUMBER_BACK and self.source is TaskState.ASSIGNED
        return number + 1 if gave_back else number

    @property
    def worker_id(self) -> str:
        """Of the current or last attempt; empty before the first."""
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
        """Tells a task's lives apart: when it became eligible, by being submitted, retried or replayed."""
        return self._record[ELIGIBLE].lstrip(b"0").decode()

    @property
    def created_ms(self) -> int:
        """When the task was first submitted, in whichever life."""
        return int(self._record[CREATED])

    @property
    def is_revived(self) -> bool:
        """Whether this life began with a retry or replay by hand, and not with a submission, maybe of a scheduled task.

        Versions before left out the zero: of a life they began it is known until it is retried.
        """
        eligible = self._record[ELIGIBLE]
        return eligible[:1] == b"0" or (bool(eligible) and self._record[QUEUED] == eligible)

    @property
    def is_order_told(self) -> bool:
        """Whether a span is told of the retry or replay that began this life: two zeros say so."""
        return self._record[ELIGIBLE][:2] == b"00"

    @property
    def is_end(self) -> bool:
        return self._record[STATE] in ENDS and self._record[REASON] != b"purged"

    @property
    def error(self) -> TaskError | None:
        """What the execution that it ended failed with."""
        if self._body is None or self._record[STATE] == b"completed":
            return None
        try:
            return decode_error(self._body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return TaskError()

    @property
    def looks(self) -> "Looks":
        """What many have in common, and attributes are made of. `attempt` depends on whether it had begun."""
        record = self._record
        priority, had_begun = _priority(record[AGE_BUCKET]), bool(record[STARTED])
        return self.task_type, priority, record[STATE], record[REASON], record[ATTEMPT], record[WORKER], had_begun

    @property
    def phases(self) -> list[Phase]:
        """What it ended, in order; the whole life last, where it ended that.

        Not kept, although metrics and spans both ask: a monitor that traces nothing took 29 µs a task with them kept,
        and 26 without.
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
            began_ms = int(self._record[ELIGIBLE if self.is_revived else CREATED])
            phases.append(Phase(SPAN_LIFECYCLE, began_ms, int(self._record[ENDED])))
        return phases

    def _waits(self) -> Iterator[Phase]:
        """Hidden first where it was, then ready."""
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
        """Until when, if it hid the task for a retry."""
        return self._record[VISIBLE] if self._record[STATE] == b"queued" and self._record[QUEUED] else b""

    @property
    def may_end_backoff(self) -> bool:
        """Whether the journal may remember until when the task was hidden; most were never retried."""
        was_hidden = self._record[RETRIES] != b"0" or self._record[LOSSES] != b"0"
        return was_hidden and (self._record[STATE] == b"assigned" or bool(self._record[ENDED]))


@functools.lru_cache(maxsize=1_024)
def _priority(age_bucket: bytes) -> str:
    """Tasks of a minute share one."""
    return age_bucket.rpartition(b":")[0].decode()


def transitions_in(entry: Entry) -> list[Transition]:
    """In the order they happened. Raises UnreadableRecord, of one or all of them."""
    _, fields = entry
    body_of = fields.get
    transitions = list[Transition]()
    for task_key, packed in fields.items():
        if len(task_key) == 36:
            if not task_key.isascii():
                raise UnreadableRecord("an event is about something else than a task")
            record = _fields(packed)
            was = _revived_from(fields.get(task_key + b":from", b"")) if record[REASON] == b"retried" else b""
            transitions.append(Transition(task_key, int(fields[b"now_ms"]), record, body_of(task_key + b":body"), was))
    return transitions


def _revived_from(state: bytes) -> bytes:
    """Nothing where an earlier version wrote the event."""
    if state and not WORD.fullmatch(state):
        raise UnreadableRecord("an event has something else than a word for the state it came from")
    return state


def readable_transitions_in(entry: Entry) -> tuple[list[Transition], int]:
    """The same without those that cannot be read, and how many these are."""
    transitions, skipped_count = list[Transition](), 0
    for name, value in entry.fields.items():
        if len(name) == 36:
            try:
                shared = {key: each for key, each in entry.fields.items() if len(key) != 36}
                transitions += transitions_in(Entry(entry.entry_id, {**shared, name: value}))
            except (KeyError, ValueError) as error:
                skipped_count += 1
                log.error("event skipped", entry_id=entry.entry_id, task_id=shown(name), problem=repr(error))
    return transitions, skipped_count


def _fields(packed: bytes) -> list[bytes]:
    fields = packed.split(b"\0")
    if len(fields) != SPLIT_COUNT or packed[:1].isdigit() or not packed.isascii():
        fields = [field.encode() for field in record_fields(packed.decode())]
    if not (all(needed_in(fields)) and b"".join(reckoned_in(fields)).isdigit()):
        raise UnreadableRecord("a record has something else than a number for one that is reckoned with")
    for word in (fields[STATE], fields[REASON]):
        if word not in STATES and word not in REASONS and not WORD.fullmatch(word):
            raise UnreadableRecord("a record has something else than a word for its state or its reason")
    return fields
