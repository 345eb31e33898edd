"""From changes to rows: what a batch adds to, changes in and removes from each table.

A task whose whole life lies in one batch is one row of `tasks`, written once: that is why catching up is cheaper than
keeping up. Rows that COPY takes are made as its text format; COPY takes a seventh of what INSERT does.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tideq.persistence.changes import CREATED, IDEMPOTENCY, Change, timestamp
from tideq.persistence.definitions import NOTHING, attributes_text, unpack
from tideq.persistence.patterns import normalised, pattern_of
from tideq.persistence.terms import definition_terms, error_terms, read_error
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Definition

NULL = rb"\N"
BACKSLASH, NEWLINE, TAB, RETURN = b"\\\n\t\r"
PURGED = Reason.PURGED.encode()
REVIVED = (Reason.RETRIED.encode(), Reason.REPLAYED.encode())
SEPARATED = bytes.maketrans(b"\0", b"\x1f")
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
            if change.reason == PURGED:
                self._purge(change.task_id)
            else:
                self._add(change)
        return self

    def _add(self, change: Change) -> None:
        task_id, state, error = change.task_id, change.state, None
        if change.is_birth:
            self.born.add(task_id)
        if state == DEAD:
            self.deaths.append(change)
        if change.reason in REVIVED:
            self.revived.add(task_id)
        if change.body is not None and state != COMPLETED:
            error = change.body
            self.errors.setdefault(task_id, []).append(error)
        self.latest[task_id] = change
        line = _event_line(change, error)
        if task_id in self.events:
            self.events[task_id].append(line)
        else:
            self.events[task_id] = [line]

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
        return b"".join([self._new_task_line(task_id, _definition(definitions, task_id)) for task_id in self._new()])

    def task_lines(self, definitions: Mapping[bytes, bytes]) -> bytes:
        """Of these tasks, whether new or not."""
        return b"".join([self._new_task_line(task_id, unpack(each)) for task_id, each in definitions.items()])

    def changed_task_lines(self) -> bytes:
        return b"".join([self._changed_task_line(task_id) for task_id in self.changed()])

    def _new(self) -> list[bytes]:
        """As they came, which is nearly the order of their ids: in any other their rows take half as long again."""
        return [task_id for task_id in self.latest if task_id in self.born]

    def changed(self) -> list[bytes]:
        return [task_id for task_id in self.latest if task_id not in self.born]

    def new_term_lines(self, definitions: Mapping[bytes, bytes]) -> bytes:
        """Terms of new tasks, of which history has none yet."""
        found: dict[str, list[bytes]] = {}
        for task_id in self._new():
            definition = _definition(definitions, task_id)
            if definition.tags or definition.searchable or task_id in self.errors:
                for term in dict.fromkeys((*definition_terms(definition), *self._error_terms(task_id))):
                    found.setdefault(term, []).append(task_id)
        return b"".join([_term_lines(term, found[term]) for term in sorted(found)])

    def later_terms(self) -> list[tuple[str, str]]:
        """Terms of known tasks: words of their errors, some of which history may have.

        Each once, in an order in which two writers cannot lock each other out.
        """
        known = [task_id for task_id in self.errors if task_id not in self.born]
        return sorted({(term, task_id.decode()) for task_id in known for term in self._error_terms(task_id)})

    def _error_terms(self, task_id: bytes) -> list[str]:
        errors = map(read_error, self.errors.get(task_id, ()))
        return [term for error in errors for term in error_terms(f"{error.message} {error.code}")]

    def dead_letters(self, task_types: Mapping[bytes, str]) -> list[DeadLetter]:
        return [_dead_letter(death, task_types[death.task_id]) for death in self.deaths]

    def is_dead(self, task_id: str) -> bool:
        change = self.latest.get(task_id.encode())
        return change is not None and change.state == DEAD

    def _new_task_line(self, task_id: bytes, definition: Definition) -> bytes:
        change = self.latest[task_id]
        cold = change.cold.split(b"\0")
        is_plain = definition == Definition(definition.task_type, definition.parameters)
        return b"\t".join(
            (
                *_identity(change),
                definition.task_type.encode(),
                change.priority,
                change.worker or NULL,
                _trace_id(definition),
                cold[IDEMPOTENCY] or NULL,
                timestamp(int(cold[CREATED])),
                timestamp(int(change.ended_ms)) if change.ended_ms else NULL,
                copy_text(definition.parameters),
                NOTHING if is_plain else copy_text(attributes_text(definition)),
                *self._content(task_id, change),
            )
        )

    def _changed_task_line(self, task_id: bytes) -> bytes:
        change = self.latest[task_id]
        return b"\t".join(
            (
                *_identity(change),
                change.priority,
                change.worker or NULL,
                timestamp(int(change.ended_ms)) if change.ended_ms else NULL,
                *self._content(task_id, change),
            )
        )

    def _content(self, task_id: bytes, change: Change) -> tuple[bytes, bytes, bytes]:
        """Record, result and the latest error."""
        errors = self.errors.get(task_id)
        return (
            change.packed.translate(SEPARATED),
            copy_text(change.body) if change.body is not None and change.state == COMPLETED else NULL,
            (copy_text(errors[-1]) if errors else NULL) + b"\n",
        )


def finished_in(changes: Iterable[Change], but_not: Collection[bytes]) -> list[tuple[str, int]]:
    """Tasks that ended, with the version they ended in."""
    latest = {change.task_id: change for change in changes}
    return [
        (task_id.decode(), int(change.version))
        for task_id, change in latest.items()
        if change.state in TERMINAL and change.reason != PURGED and task_id not in but_not
    ]


def copy_text(text: bytes) -> bytes:
    """Escaped as COPY's text format wants it. Looking for a number is ten times as fast as looking for a text."""
    if BACKSLASH in text:
        text = text.replace(b"\\", rb"\\")
    if NEWLINE in text or TAB in text or RETURN in text:
        text = text.replace(b"\n", rb"\n").replace(b"\t", rb"\t").replace(b"\r", rb"\r")
    return text


def _identity(change: Change) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    return change.task_id, b"%d" % change.epoch, change.version, change.state, change.reason


def _event_line(change: Change, error: bytes | None) -> bytes:
    return b"\t".join(
        (
            change.task_id,
            b"%d" % change.epoch,
            change.version,
            timestamp(change.now_ms),
            change.state,
            change.reason,
            change.attempt,
            change.worker or NULL,
            (NULL if error is None else copy_text(error)) + b"\n",
        )
    )


def _definition(definitions: Mapping[bytes, bytes], task_id: bytes) -> Definition:
    if task_id not in definitions:
        raise MissingDefinition(task_id.decode())
    return unpack(definitions[task_id])


def _term_lines(term: str, task_ids: Iterable[bytes]) -> bytes:
    prefix = copy_text(term.encode()) + b"\t"
    return prefix + (b"\n" + prefix).join(task_ids) + b"\n"


def _trace_id(definition: Definition) -> bytes:
    parts = definition.trace.traceparent.split("-") if definition.trace else []
    return parts[1].encode() if len(parts) == 4 else NULL


def _dead_letter(death: Change, task_type: str) -> DeadLetter:
    error, reason = read_error(death.body), death.reason.decode()
    message = normalised(error.message) or reason
    return DeadLetter(
        task_id=death.task_id.decode(),
        died_ms=int(death.ended_ms or death.now_ms),
        task_type=task_type,
        priority=death.priority.decode(),
        reason=reason,
        pattern=pattern_of(task_type, reason, error.message or reason),
        message=message,
        retriable=error.retriable,
    )
