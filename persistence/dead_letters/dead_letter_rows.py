"""Rows of dead letters, and the number of deaths of each pattern."""

from collections.abc import Sequence
from typing import NamedTuple

from tideq.persistence.dead_letters.patterns import normalised, pattern_of
from tideq.persistence.replication.changes import AGE_BUCKET, ENDED, Change, priority_of
from tideq.persistence.terms import read_error


class DeadLetterRow(NamedTuple):
    task_id: str
    died_ms: int
    task_type: str
    priority: str
    reason: str
    pattern: str
    message: str
    retriable: bool


def dead_letter(death: Change, task_type: str) -> DeadLetterRow:
    error, reason, fields = read_error(death.body), death.reason.decode(), death.fields
    message = normalised(error.message) or reason
    return DeadLetterRow(
        task_id=death.task_id.decode(),
        died_ms=int(fields[ENDED] or death.now_ms),
        task_type=task_type,
        priority=priority_of(fields[AGE_BUCKET]).decode(),
        reason=reason,
        pattern=pattern_of(task_type, reason, error.message or reason),
        message=message,
        retriable=error.retriable,
    )


def by_pattern(deaths: Sequence[DeadLetterRow]) -> list[tuple[str, str, str, str, int, int, int]]:
    groups: dict[str, list[DeadLetterRow]] = {}
    for letter in deaths:
        groups.setdefault(letter.pattern, []).append(letter)
    return [
        (
            pattern,
            letters[0].task_type,
            letters[0].reason,
            letters[0].message,
            min(letter.died_ms for letter in letters),
            max(letter.died_ms for letter in letters),
            len(letters),
        )
        for pattern, letters in sorted(groups.items())
    ]
