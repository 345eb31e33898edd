"""Rows of a batch: what its changes add to, change in and remove from each table.

A task whose events are all in one batch is one row of `tasks`, written once. New rows are written by binary COPY, which
takes a seventh of the time of INSERT (docs/history.md).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import LiteralString, NamedTuple

from tideq.persistence.dead_letters.dead_letter_rows import DeadLetterRow, dead_letter
from tideq.persistence.definitions import NO_ATTRIBUTES, attributes_text, is_plain, unpack
from tideq.persistence.replication.changes import (
    AGE_BUCKET,
    CREATED,
    ENDED,
    FIRST_VERSION,
    IDEMPOTENCY,
    REASON,
    STATE,
    SUBMITTED,
    VERSION,
    WORKER,
    Change,
    priority_of,
    timestamp,
)
from tideq.persistence.replication.copying import (
    NULL,
    TEXT_NULL,
    copy_text,
    instant_field,
    integer_field,
    length,
    row_start,
    text_field,
    uuid_field,
)
from tideq.persistence.terms import definition_terms, error_terms, read_error
from tideq.queue_core.scripts.record import without_number
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Definition

EVENT_COLUMNS: LiteralString = "task_id, epoch, at, version, state, reason, attempt, worker_id, error"
TASK_COLUMNS: LiteralString = (
    "task_id, epoch, version, state, reason, task_type, priority, worker_id, trace_id, attributes, idempotency, "
    "created_at, ended_at, parameters, record, result, error"
)
"""In the order of the row bytes below: fields that many rows share are adjacent, so that they are encoded once."""
EVENT_START, TASK_START = row_start(EVENT_COLUMNS), row_start(TASK_COLUMNS)
PLAIN = NULL + text_field(NO_ATTRIBUTES)
"""The fields of a task without trace and attributes."""
BLOCK = 500
LETTERS = ord("A")
"""A record with a lower first byte begins with the number of its format."""
PURGED = Reason.PURGED.encode()
REQUEUED = (Reason.RETRIED.encode(), Reason.REPLAYED.encode())
SEPARATED = bytes.maketrans(b"\0", b"\x1f")
COMPLETED = TaskState.COMPLETED.encode()
DEAD = TaskState.DEAD_LETTER.encode()
TERMINAL = {state.encode() for state in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)} | {DEAD}
CREATION, DEATH, REQUEUE, PURGE = 1, 2, 4, 8
"""Flags: the effects of an event beyond its row. An event may have several."""

RowKey = tuple[bytes, bytes, bytes, bytes, bytes]
"""State, version, attempt, worker and reason: most events of a batch share these with many others."""

TaskRowKey = tuple[str, int, bytes, bytes, bytes, bytes, bytes]
"""Type, epoch, state, version, reason, worker and age bucket: most task rows of a batch share these."""


class RowTemplate(NamedTuple):
    """The encoded fields and the effects that all events of one key share."""

    fields: bytes
    effects: int


class MissingDefinition(ValueError):
    """The store no longer has the definition of a new task."""


class Rows:
    """The rows of one batch. Fill with `add` or `add_snapshot`, then read."""

    def __init__(self) -> None:
        self.events: dict[bytes, bytes] = {}
        """Rows of `task_events`, grouped by task: the index takes rows in the order of ids faster."""
        self.latest: dict[bytes, Change] = {}
        self.errors: dict[bytes, list[bytes]] = {}
        self.created: set[bytes] = set()
        self.purged: dict[bytes, Change] = {}
        self.requeued: set[bytes] = set()
        self.deaths: list[Change] = []
        self._ids: dict[bytes, bytes] = {}
        self._templates: dict[RowKey, RowTemplate] = {}
        self._shared: dict[TaskRowKey, bytes] = {}
        self._instants: dict[bytes, bytes] = {}

    def add(self, changes: Iterable[Change]) -> "Rows":
        """Costs under a microsecond an event. Keep it one loop without method calls."""
        templates, ids, events, latest = self._templates, self._ids, self.events, self.latest
        entry_id, moment = "", b""
        for change in changes:
            if change.entry_id is not entry_id:
                entry_id, moment = change.entry_id, integer_field(change.epoch) + instant_field(change.now_ms)
            task_id, packed = change.task_id, change.packed
            if packed[0] < LETTERS:
                packed = without_number(packed)
            state, version, _, _, _, _, attempt, _, worker, reason, _ = packed.split(b"\0", REASON + 1)
            key = (state, version, attempt, worker, reason)
            fields, effects = templates.get(key) or self._template_for(key)
            if effects:
                self._take_effect(effects, change)
                if effects == PURGE:
                    continue
            latest[task_id] = change
            error = NULL if change.body is None or state == COMPLETED else self._error(change)
            raw_id = ids.get(task_id) or self._id_of(task_id)
            events[task_id] = b"".join((events.get(task_id, b""), EVENT_START, raw_id, moment, fields, error))
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
        number, texts = integer_field(int(version)), text_field(state) + text_field(reason or SUBMITTED)
        fields = number + texts + integer_field(int(attempt)) + (text_field(worker) if worker else NULL)
        self._templates[key] = template = RowTemplate(fields, _effects(state, version, reason))
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
        return text_field(body)

    def _id_of(self, task_id: bytes) -> bytes:
        self._ids[task_id] = raw_id = uuid_field(task_id)
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

    def event_rows(self) -> bytes:
        return b"".join(self.events.values())

    def new_task_rows(self, definitions: Mapping[bytes, bytes]) -> Iterator[bytes]:
        """Yields blocks, so that PostgreSQL works while the next block is made."""
        new = self._new()
        for start in range(0, len(new), BLOCK):
            block = new[start : start + BLOCK]
            yield b"".join([self._task_row(task_id, _definition(definitions, task_id)) for task_id in block])

    def task_rows(self, definitions: Mapping[bytes, bytes]) -> bytes:
        """Returns the rows of these tasks, new or not."""
        return b"".join([self._task_row(task_id, each) for task_id, each in definitions.items()])

    def changed_task_lines(self) -> bytes:
        return b"".join([self._changed_task_line(task_id) for task_id in self.changed()])

    def _new(self) -> list[bytes]:
        """In order of arrival, nearly that of their ids: in another order writing the rows takes half as long again."""
        return [task_id for task_id in self.latest if task_id in self.created]

    def changed(self) -> list[bytes]:
        return [task_id for task_id in self.latest if task_id not in self.created]

    def new_term_lines(self, definitions: Mapping[bytes, bytes]) -> bytes:
        """Returns the terms of new tasks, of which history has none yet."""
        found: dict[str, list[bytes]] = {}
        for task_id in self._new():
            if is_plain(definitions[task_id]) and task_id not in self.errors:
                continue
            definition = unpack(definitions[task_id])
            for term in dict.fromkeys((*definition_terms(definition), *self._error_terms(task_id))):
                found.setdefault(term, []).append(task_id)
        return b"".join([_term_lines(term, found[term]) for term in sorted(found)])

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
        return [dead_letter(death, task_types[death.task_id]) for death in self.deaths]

    def is_dead(self, task_id: str) -> bool:
        change = self.latest.get(task_id.encode())
        return change is not None and change.state == DEAD

    def _task_row(self, task_id: bytes, packed_definition: bytes) -> bytes:
        change, definition = self.latest[task_id], unpack(packed_definition)
        packed, body, parameters = change.packed, change.body, definition.parameters
        fields, errors = change.fields, self.errors.get(task_id)
        state, ended, idempotency = fields[STATE], fields[ENDED], fields[IDEMPOTENCY]
        key = (
            definition.task_type,
            change.epoch,
            state,
            fields[VERSION],
            fields[REASON],
            fields[WORKER],
            fields[AGE_BUCKET],
        )
        return b"".join(
            (
                TASK_START,
                self._ids[task_id],
                self._shared.get(key) or self._share(key),
                PLAIN if is_plain(packed_definition) else _attributes(definition, packed_definition),
                text_field(idempotency) if idempotency else NULL,
                self._instants.get(fields[CREATED]) or self._instant(fields[CREATED]),
                (self._instants.get(ended) or self._instant(ended)) if ended else NULL,
                length(len(parameters)),
                parameters,
                length(len(packed)),
                packed.translate(SEPARATED),
                text_field(body) if body is not None and state == COMPLETED else NULL,
                text_field(errors[-1]) if errors else NULL,
            )
        )

    def _share(self, key: TaskRowKey) -> bytes:
        task_type, epoch, state, version, reason, worker, age_bucket = key
        texts = (state, reason or SUBMITTED, task_type.encode(), priority_of(age_bucket))
        numbers = integer_field(epoch) + integer_field(int(version))
        fields = numbers + b"".join(map(text_field, texts)) + (text_field(worker) if worker else NULL)
        self._shared[key] = fields
        return fields

    def _instant(self, text: bytes) -> bytes:
        """Cached because neighbours share instants: a look-up takes a sixth of the encoding."""
        self._instants[text] = field = instant_field(int(text))
        return field

    def _changed_task_line(self, task_id: bytes) -> bytes:
        """Returns a line of `staged` in COPY's text format."""
        change = self.latest[task_id]
        fields, errors = change.fields, self.errors.get(task_id)
        return b"\t".join(
            (
                task_id,
                b"%d" % change.epoch,
                fields[VERSION],
                fields[STATE],
                fields[REASON] or SUBMITTED,
                priority_of(fields[AGE_BUCKET]),
                fields[WORKER] or TEXT_NULL,
                timestamp(int(fields[ENDED])) if fields[ENDED] else TEXT_NULL,
                change.packed.translate(SEPARATED),
                copy_text(change.body) if change.body is not None and fields[STATE] == COMPLETED else TEXT_NULL,
                (copy_text(errors[-1]) if errors else TEXT_NULL) + b"\n",
            )
        )


def finished_tasks(changes: Iterable[Change], but_not: Collection[bytes]) -> list[tuple[str, int]]:
    """Returns the tasks that ended, with the version they ended in, except purged ones and those in `but_not`."""
    latest, finished = {change.task_id: change for change in changes}, list[tuple[str, int]]()
    for task_id, change in latest.items():
        version = 0 if task_id in but_not else change.readable_version
        if version and change.state in TERMINAL and (PURGED not in change.packed or change.readable_reason != PURGED):
            finished.append((change.printable_id, version))
    return finished


def _effects(state: bytes, version: bytes, reason: bytes) -> int:
    if reason == PURGED:
        return PURGE
    is_first, is_dead, is_requeued = version == FIRST_VERSION, state == DEAD, reason in REQUEUED
    return CREATION * is_first + DEATH * is_dead + REQUEUE * is_requeued


def _definition(definitions: Mapping[bytes, bytes], task_id: bytes) -> bytes:
    if task_id not in definitions:
        raise MissingDefinition(task_id.decode())
    return definitions[task_id]


def _term_lines(term: str, task_ids: Iterable[bytes]) -> bytes:
    prefix = copy_text(term.encode()) + b"\t"
    return prefix + (b"\n" + prefix).join(task_ids) + b"\n"


def _attributes(definition: Definition, packed_definition: bytes) -> bytes:
    return _trace_id(definition) + text_field(attributes_text(definition, packed_definition))


def _trace_id(definition: Definition) -> bytes:
    parts = definition.trace.traceparent.split("-") if definition.trace else []
    return uuid_field(parts[1].encode()) if len(parts) == 4 else NULL
