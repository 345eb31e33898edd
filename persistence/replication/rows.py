"""Rows of a batch: what its changes add to, change in and remove from each table.

A task whose events are all in one batch is one row of `tasks`, written once. Rows are values as psycopg copies them,
and texts stay the bytes that arrived. An event costs about a microsecond here, because events of a batch look alike:
their common part is made once and found again by its form.
"""

import functools
from binascii import unhexlify
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, LiteralString, NamedTuple

import msgspec

from tideq.persistence.dead_letters.patterns import DeadLetterRow, dead_letter
from tideq.persistence.definitions import NO_ATTRIBUTES, attributes_text, is_plain, unpack
from tideq.persistence.terms import definition_terms, error_terms, read_error
from tideq.queue_core.scripts.record import fields_reader, record_field
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Definition

Row = tuple[Any, ...]
UUID_LENGTH = 16
MAX_NUMBER = 2**31
"""The limit of PostgreSQL's integers."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_VERSION = b"1"
SUBMITTED, PURGED = Reason.SUBMITTED.encode(), Reason.PURGED.encode()
REQUEUED = (Reason.RETRIED.encode(), Reason.REPLAYED.encode())
SEPARATED = bytes.maketrans(b"\0", b"\x1f")
COMPLETED, DEAD = TaskState.COMPLETED.encode(), TaskState.DEAD_LETTER.encode()
CREATION, DEATH, REQUEUE, PURGE = 1, 2, 4, 8
"""Flags: the effects of an event beyond its row. An event may have several."""

RowKey = tuple[bytes, ...]
"""State, version, attempt, worker and reason: most events of a batch share these with many others."""
event_key = fields_reader("state", "version", "attempt", "worker", "reason")
task_fields = fields_reader(
    "state", "version", "reason", "worker", "age_bucket", "idempotency", "created_ms", "ended_ms"
)


class CopyTarget(NamedTuple):
    """A table, and its columns in the order of the rows that are copied into it."""

    table: LiteralString
    columns: LiteralString

    @property
    def statement(self) -> LiteralString:
        return f"COPY {self.table} ({self.columns}) FROM STDIN (FORMAT binary)"

    @property
    def types(self) -> list[str]:
        """Binary COPY transmits no types, so texts and UUIDs are copied as their bytes."""
        return [TYPES.get(name, "bytea") for name in self.columns.split(", ")]


INTEGERS, INSTANTS = ("epoch", "version", "attempt"), ("at", "created_at", "ended_at")
TYPES: dict[str, str] = dict.fromkeys(INTEGERS, "int4") | dict.fromkeys(INSTANTS, "timestamptz")
STATE_COLUMNS = "task_id, epoch, version, state, reason, worker_id, priority, ended_at, record, result, error"
EVENTS = CopyTarget("task_events", "task_id, epoch, at, version, state, reason, attempt, worker_id, error")
STAGED = CopyTarget("staged", STATE_COLUMNS)
TASKS = CopyTarget("tasks", f"{STATE_COLUMNS}, task_type, parameters, trace_id, attributes, idempotency, created_at")
TERMS = CopyTarget("task_terms", "term, task_id")


class MissingDefinition(ValueError):
    """The store no longer has the definition of a new task."""


ROW_ERRORS = (ValueError, OverflowError, LookupError)
"""Errors of an event from which no row can be made."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """A transition in a stream entry, as the bytes that arrived.

    Not tracked by the garbage collector, whose scans of batches took 11 % of the time.
    """

    entry_id: str
    epoch: int
    now_ms: int
    task_id: bytes
    packed: bytes
    body: bytes | None

    @property
    def state(self) -> bytes:
        return record_field(self.packed, "state")

    @property
    def printable_id(self) -> str:
        """The task's id as text; an invalid id with the bytes replaced that PostgreSQL refuses."""
        return self.task_id.decode(errors="replace").replace("\0", "\ufffd")

    @property
    def readable_version(self) -> int:
        """The version, or 0 where the record cannot be read."""
        version = self._readable_number("version")
        return version if version is not None and version < MAX_NUMBER else 0

    @property
    def readable_created_ms(self) -> int | None:
        """The instant of creation, or None where the record cannot be read."""
        return self._readable_number("created_ms")

    @property
    def readable_reason(self) -> bytes | None:
        """The reason, or None where the record cannot be read."""
        try:
            return record_field(self.packed, "reason") or SUBMITTED
        except ValueError:
            return None

    def _readable_number(self, name: str) -> int | None:
        try:
            text = record_field(self.packed, name)
        except ValueError:
            return None
        return int(text) if text.isdigit() else None


class RowTemplate(NamedTuple):
    """The values and the effects that all events of one key share."""

    values: Row
    effects: int


class Rows:
    """The rows of one batch. Fill with `add` or `add_snapshot`, then read."""

    def __init__(self) -> None:
        self.events: dict[bytes, list[Row]] = {}
        """Rows of `task_events`, grouped by task: the index takes rows in the order of ids faster."""
        self.latest: dict[bytes, Change] = {}
        self.errors: dict[bytes, list[bytes]] = {}
        self.created: set[bytes] = set()
        self.purged: dict[bytes, Change] = {}
        self.requeued: set[bytes] = set()
        self.deaths: list[Change] = []
        self._ids: dict[bytes, bytes] = {}
        self._templates: dict[RowKey, RowTemplate] = {}
        self._shared: dict[tuple[int | bytes, ...], Row] = {}

    def add(self, changes: Iterable[Change]) -> "Rows":
        """Costs about a microsecond an event. Keep it one loop with few calls."""
        templates, ids, events, latest = self._templates, self._ids, self.events, self.latest
        entry_id, epoch, at = "", 0, EPOCH
        for change in changes:
            if change.entry_id is not entry_id:
                entry_id, epoch, at = change.entry_id, change.epoch, EPOCH + timedelta(milliseconds=change.now_ms)
            task_id = change.task_id
            key = event_key(change.packed)
            values, effects = templates.get(key) or self._template_for(key)
            if effects:
                self._take_effect(effects, change)
                if effects == PURGE:
                    continue
            latest[task_id] = change
            raw_id = ids.get(task_id) or self._id_of(task_id)
            error = None if change.body is None or key[0] == COMPLETED else self._error(change)
            row = (raw_id, epoch, at, *values, error)
            if task_id in events:
                events[task_id].append(row)
            else:
                events[task_id] = [row]
        return self

    def add_snapshot(self, changes: Iterable[Change]) -> "Rows":
        """Adds the state of tasks without their events."""
        for change in changes:
            self.latest[change.task_id] = change
            self._id_of(change.task_id)
            if change.state == DEAD:
                self.deaths.append(change)
        return self

    def _template_for(self, key: RowKey) -> RowTemplate:
        state, version, attempt, worker, reason = key
        values = (_number(version), state, reason or SUBMITTED, _number(attempt), worker or None)
        self._templates[key] = template = RowTemplate(values, _effects(state, version, reason))
        return template

    def _take_effect(self, effects: int, change: Change) -> None:
        if effects & CREATION:
            self.created.add(change.task_id)
        if effects & DEATH:
            self.deaths.append(change)
        if effects & REQUEUE:
            self.requeued.add(change.task_id)
        if effects & PURGE:
            self._purge(change.task_id, change)

    def _error(self, change: Change) -> bytes:
        body = change.body or b""
        self.errors.setdefault(change.task_id, []).append(body)
        return body

    def _id_of(self, task_id: bytes) -> bytes:
        self._ids[task_id] = raw_id = uuid_bytes(task_id)
        return raw_id

    def _purge(self, task_id: bytes, change: Change) -> None:
        """Drops all earlier changes of the task; a later change may submit the same id again."""
        self.purged[task_id] = change
        self.created.discard(task_id)
        self.requeued.discard(task_id)
        self.events.pop(task_id, None)
        self.latest.pop(task_id, None)
        self.errors.pop(task_id, None)
        self.deaths = [death for death in self.deaths if death.task_id != task_id]

    def event_rows(self) -> Iterator[Row]:
        return chain.from_iterable(self.events.values())

    def new_task_rows(self, definitions: Mapping[bytes, bytes]) -> Iterator[Row]:
        """Yields rows as they are copied, so that PostgreSQL works while the next are made."""
        for task_id in self._new():
            if task_id not in definitions:
                raise MissingDefinition(task_id.decode())
            yield self._task_row(task_id, definitions[task_id])

    def task_rows(self, definitions: Mapping[bytes, bytes]) -> list[Row]:
        """Returns the rows of these tasks, new or not."""
        return [self._task_row(task_id, each) for task_id, each in definitions.items()]

    def changed_rows(self) -> list[Row]:
        return [self._state_row(task_id, task_fields(self.latest[task_id].packed)) for task_id in self.changed()]

    def _new(self) -> list[bytes]:
        """In order of arrival, nearly that of their ids: in another order writing the rows takes half as long again."""
        return [task_id for task_id in self.latest if task_id in self.created]

    def changed(self) -> list[bytes]:
        return [task_id for task_id in self.latest if task_id not in self.created]

    def new_term_rows(self, definitions: Mapping[bytes, bytes]) -> list[Row]:
        """Returns the terms of new tasks, of which history has none yet, in the order of their index."""
        found: list[Row] = []
        for task_id in self._new():
            if is_plain(definitions[task_id]) and task_id not in self.errors:
                continue
            terms = (*definition_terms(unpack(definitions[task_id])), *self._error_terms(task_id))
            found += [(term.encode(), self._ids[task_id]) for term in dict.fromkeys(terms)]
        return sorted(found)

    def later_terms(self) -> list[tuple[str, str]]:
        """Returns the error terms of changed tasks, of which history may have some.

        Each occurs once; the sorted order keeps two writers from a deadlock.
        """
        changed = [task_id for task_id in self.errors if task_id not in self.created]
        return sorted({(term, task_id.decode()) for task_id in changed for term in self._error_terms(task_id)})

    def snapshot_terms(self, definitions: Mapping[bytes, bytes]) -> list[tuple[str, str]]:
        """Returns the terms of the tasks' definitions, in the order of `later_terms`."""
        tasks = [(task_id.decode(), unpack(definitions[task_id])) for task_id in self.latest]
        return sorted({(term, task_id) for task_id, definition in tasks for term in definition_terms(definition)})

    def _error_terms(self, task_id: bytes) -> list[str]:
        errors = map(read_error, self.errors.get(task_id, ()))
        return [term for error in errors for term in error_terms(f"{error.message} {error.code}")]

    def dead_letters(self, task_types: Mapping[bytes, str]) -> list[DeadLetterRow]:
        return [_dead_letter(death, task_types[death.task_id]) for death in self.deaths]

    def is_dead(self, task_id: str) -> bool:
        change = self.latest.get(task_id.encode())
        return change is not None and change.state == DEAD

    def _task_row(self, task_id: bytes, packed_definition: bytes) -> Row:
        definition, fields = unpack(packed_definition), task_fields(self.latest[task_id].packed)
        *_, idempotency, created_ms, _ = fields
        is_short = is_plain(packed_definition)
        return (
            *self._state_row(task_id, fields),
            definition.task_type.encode(),
            definition.parameters,
            None if is_short else _trace_id(definition),
            NO_ATTRIBUTES if is_short else attributes_text(definition, packed_definition),
            idempotency or None,
            instant(created_ms),
        )

    def _state_row(self, task_id: bytes, fields: tuple[bytes, ...]) -> Row:
        """Returns the values that change in the life of a task."""
        change, errors = self.latest[task_id], self.errors.get(task_id)
        state, version, reason, worker, age_bucket, _, _, ended_ms = fields
        key = (change.epoch, state, version, reason, worker, age_bucket)
        return (
            self._ids[task_id],
            *(self._shared.get(key) or self._share(*key)),
            instant(ended_ms) if ended_ms else None,
            change.packed.translate(SEPARATED),
            change.body if state == COMPLETED else None,
            errors[-1] if errors else None,
        )

    def _share(self, epoch: int, state: bytes, version: bytes, reason: bytes, worker: bytes, age_bucket: bytes) -> Row:
        """Returns the values that most task rows of a batch share."""
        values = (epoch, _number(version), state, reason or SUBMITTED, worker or None, priority_of(age_bucket))
        self._shared[epoch, state, version, reason, worker, age_bucket] = values
        return values


def uuid_bytes(text: bytes) -> bytes:
    """Raises ValueError for other texts: PostgreSQL reports a field of another length as an error of the connection."""
    raw = unhexlify(text.replace(b"-", b""))
    if len(raw) != UUID_LENGTH:
        raise ValueError(f"{text!r} is not a UUID")
    return raw


@functools.lru_cache(maxsize=65_536)
def instant(milliseconds: bytes) -> datetime:
    """Cached because neighbours share instants."""
    return EPOCH + timedelta(milliseconds=int(milliseconds))


def priority_of(age_bucket: bytes) -> bytes:
    return age_bucket.rpartition(b":")[0]


def _number(text: bytes) -> int:
    """Raises ValueError: psycopg would cut a number that is too large."""
    number = int(text)
    if not -MAX_NUMBER <= number < MAX_NUMBER:
        raise ValueError(f"{number} is no integer of four bytes")
    return number


def _effects(state: bytes, version: bytes, reason: bytes) -> int:
    if reason == PURGED:
        return PURGE
    is_first, is_dead, is_requeued = version == FIRST_VERSION, state == DEAD, reason in REQUEUED
    return CREATION * is_first + DEATH * is_dead + REQUEUE * is_requeued


def _dead_letter(death: Change, task_type: str) -> DeadLetterRow:
    _, _, reason, _, age_bucket, _, _, ended_ms = task_fields(death.packed)
    return dead_letter(
        death.task_id.decode(),
        int(ended_ms or death.now_ms),
        task_type,
        priority_of(age_bucket).decode(),
        (reason or SUBMITTED).decode(),
        death.body,
    )


def _trace_id(definition: Definition) -> bytes | None:
    parts = definition.trace.traceparent.split("-") if definition.trace else []
    return uuid_bytes(parts[1].encode()) if len(parts) == 4 else None
