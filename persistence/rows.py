"""From changes to rows: what a batch adds to, changes in and removes from each table.

A task whose whole life lies in one batch is one row of `tasks`, written once: that is why catching up is cheaper than
keeping up. Rows that COPY takes are made as its text format; COPY takes a seventh of what INSERT does.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tideq.persistence.changes import (
    AGE_BUCKET,
    ATTEMPT,
    CREATED,
    ENDED,
    IDEMPOTENCY,
    REASON,
    STATE,
    VERSION,
    WORKER,
    Change,
    timestamp,
)
from tideq.persistence.definitions import NOTHING, attributes_text, unpack
from tideq.persistence.patterns import normalised, pattern_of
from tideq.persistence.terms import definition_terms, error_terms, read_error
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Definition

NULL = rb"\N"
PURGED = Reason.PURGED.encode()
REVIVED = (Reason.RETRIED.encode(), Reason.REPLAYED.encode())
COMPLETED = TaskState.COMPLETED.encode()
DEAD = TaskState.DEAD_LETTER.encode()
TERMINAL = {state.encode() for state in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)} | {DEAD}


class DeadLetter(NamedTuple):
    task_id: str
    died_ms: int
    task_type: str
    priority: str
    reason: str
    pattern: str
    message: str
    retriable: bool


class MissingDefinition(ValueError):
    """The store no longer has what a submission was about."""


class Rows:
    """What one batch comes to. Fill with `add`, then read."""

    def __init__(self) -> None:
        self.events: dict[bytes, list[bytes]] = {}
        self.latest: dict[bytes, Change] = {}
        self.errors: dict[bytes, list[bytes]] = {}
        self.born: set[bytes] = set()
        self.purged: set[bytes] = set()
        self.revived: set[bytes] = set()
        self.deaths: list[Change] = []

    def add(self, changes: Iterable[Change]) -> "Rows":
        for change in changes:
            if change.fields[REASON] == PURGED:
                self._purge(change.task_id)
            else:
                self._add(change)
        return self

    def _add(self, change: Change) -> None:
        task_id, fields = change.task_id, change.fields
        is_error = change.body is not None and fields[STATE] != COMPLETED
        if change.is_birth:
            self.born.add(task_id)
        if fields[STATE] == DEAD:
            self.deaths.append(change)
        if change.reason in REVIVED:
            self.revived.add(task_id)
        if is_error:
            self.errors.setdefault(task_id, []).append(change.body or b"")
        self.latest[task_id] = change
        self.events.setdefault(task_id, []).append(_event_line(change, change.body if is_error else None))

    def _purge(self, task_id: bytes) -> None:
        """Whatever came before is gone with it; the same id may be submitted anew."""
        self.purged.add(task_id)
        self.born.discard(task_id)
        self.revived.discard(task_id)
        self.events.pop(task_id, None)
        self.latest.pop(task_id, None)
        self.errors.pop(task_id, None)
        self.deaths = [death for death in self.deaths if death.task_id != task_id]

    def event_lines(self) -> bytes:
        return b"".join(line for lines in self.events.values() for line in lines)

    def new_task_lines(self, definitions: Mapping[bytes, bytes]) -> bytes:
        return b"".join([self._new_task_line(task_id, _definition(definitions, task_id)) for task_id in self.born])

    def task_lines(self, definitions: Mapping[bytes, bytes]) -> bytes:
        """Of these tasks, whether new or not."""
        return b"".join([self._new_task_line(task_id, unpack(each)) for task_id, each in definitions.items()])

    def changed_task_lines(self) -> bytes:
        return b"".join([self._changed_task_line(task_id) for task_id in self.changed()])

    def changed(self) -> list[bytes]:
        return [task_id for task_id in self.latest if task_id not in self.born]

    def terms(self, definitions: Mapping[bytes, bytes]) -> list[tuple[str, str]]:
        """Each once, in an order in which two writers cannot lock each other out."""
        found = {
            (term, task_id.decode())
            for task_id in self.born
            for term in definition_terms(_definition(definitions, task_id))
        }
        for task_id, documents in self.errors.items():
            for error in map(read_error, documents):
                found.update((term, task_id.decode()) for term in error_terms(f"{error.message} {error.code}"))
        return sorted(found)

    def dead_letters(self, task_types: Mapping[bytes, str]) -> list[DeadLetter]:
        return [_dead_letter(death, task_types[death.task_id]) for death in self.deaths]

    def is_dead(self, task_id: str) -> bool:
        change = self.latest.get(task_id.encode())
        return change is not None and change.fields[STATE] == DEAD

    def _new_task_line(self, task_id: bytes, definition: Definition) -> bytes:
        change = self.latest[task_id]
        fields = change.fields
        is_plain = definition == Definition(definition.task_type, definition.parameters)
        return (
            b"\t".join(
                (
                    *_identity(change),
                    definition.task_type.encode(),
                    fields[AGE_BUCKET].rpartition(b":")[0],
                    fields[WORKER] or NULL,
                    _trace_id(definition),
                    fields[IDEMPOTENCY] or NULL,
                    timestamp(int(fields[CREATED])),
                    timestamp(int(fields[ENDED])) if fields[ENDED] else NULL,
                    copy_text(definition.parameters),
                    NOTHING if is_plain else copy_text(attributes_text(definition)),
                    *self._content(task_id, change),
                )
            )
            + b"\n"
        )

    def _changed_task_line(self, task_id: bytes) -> bytes:
        change = self.latest[task_id]
        fields = change.fields
        return (
            b"\t".join(
                (
                    *_identity(change),
                    fields[AGE_BUCKET].rpartition(b":")[0],
                    fields[WORKER] or NULL,
                    timestamp(int(fields[ENDED])) if fields[ENDED] else NULL,
                    *self._content(task_id, change),
                )
            )
            + b"\n"
        )

    def _content(self, task_id: bytes, change: Change) -> tuple[bytes, bytes, bytes]:
        """Record, result and the latest error."""
        has_result = change.fields[STATE] == COMPLETED and change.body is not None
        errors = self.errors.get(task_id)
        return (
            change.packed.replace(b"\0", b"\x1f"),
            copy_text(change.body or b"") if has_result else NULL,
            copy_text(errors[-1]) if errors else NULL,
        )


def finished_in(changes: Iterable[Change], but_not: Collection[bytes]) -> list[tuple[str, int]]:
    """Tasks that ended, with the version they ended in."""
    latest = {change.task_id: change for change in changes}
    return [
        (task_id.decode(), int(change.fields[VERSION]))
        for task_id, change in latest.items()
        if change.fields[STATE] in TERMINAL and change.fields[REASON] != PURGED and task_id not in but_not
    ]


def copy_text(text: bytes) -> bytes:
    """Escaped as COPY's text format wants it."""
    if b"\\" in text:
        text = text.replace(b"\\", rb"\\")
    if b"\n" in text or b"\t" in text or b"\r" in text:
        text = text.replace(b"\n", rb"\n").replace(b"\t", rb"\t").replace(b"\r", rb"\r")
    return text


def _identity(change: Change) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    fields = change.fields
    return change.task_id, b"%d" % change.epoch, fields[VERSION], fields[STATE], change.reason


def _event_line(change: Change, error: bytes | None) -> bytes:
    fields = change.fields
    return b"%b\t%d\t%b\t%b\t%b\t%b\t%b\t%b\t%b\n" % (
        change.task_id,
        change.epoch,
        fields[VERSION],
        timestamp(change.now_ms),
        fields[STATE],
        change.reason,
        fields[ATTEMPT],
        fields[WORKER] or NULL,
        NULL if error is None else copy_text(error),
    )


def _definition(definitions: Mapping[bytes, bytes], task_id: bytes) -> Definition:
    if task_id not in definitions:
        raise MissingDefinition(task_id.decode())
    return unpack(definitions[task_id])


def _trace_id(definition: Definition) -> bytes:
    parts = definition.trace.traceparent.split("-") if definition.trace else []
    return parts[1].encode() if len(parts) == 4 else NULL


def _dead_letter(death: Change, task_type: str) -> DeadLetter:
    error, reason = read_error(death.body), death.reason.decode()
    message = normalised(error.message) or reason
    return DeadLetter(
        task_id=death.task_id.decode(),
        died_ms=int(death.fields[ENDED] or death.now_ms),
        task_type=task_type,
        priority=death.fields[AGE_BUCKET].rpartition(b":")[0].decode(),
        reason=reason,
        pattern=pattern_of(task_type, reason, error.message or reason),
        message=message,
        retriable=error.retriable,
    )
