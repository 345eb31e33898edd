"""Patterns of dead letters: type, reason, and the message without the parts that differ between tasks. Pure."""

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from tideq.persistence.terms import read_error

MAX_LENGTH = 200

_PARTS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<![\w/])/(?:[\w.@%+-]+/)*[\w.@%+-]+"), "<path>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "<address>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<host>"),
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "<text>"),
    (re.compile(r"\b(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"(?<![\w<])[-+]?\d+(?:[.,:]\d+)*(?!\w)"), "<n>"),
    (re.compile(r"\d+"), "#"),
    (re.compile(r"\s+"), " "),
)


def normalised(message: str) -> str:
    """Returns the first line, with placeholders for ids, URLs, paths, addresses, quoted texts and numbers."""
    text = message.strip().partition("\n")[0][: MAX_LENGTH * 4]
    for pattern, word in _PARTS:
        text = pattern.sub(word, text)
    return text.strip()[:MAX_LENGTH]


def pattern_of(task_type: str, reason: str, message: str) -> str:
    """Returns a short name of the group. Persisted: a change of the result splits existing groups."""
    return hashlib.sha256(f"{task_type}\0{reason}\0{normalised(message)}".encode()).hexdigest()[:16]


class DeadLetterRow(NamedTuple):
    """The columns of `dead_letter_tasks`."""

    task_id: str
    died_ms: int
    task_type: str
    priority: str
    reason: str
    pattern: str
    message: str
    retriable: bool


def dead_letter(
    task_id: str, died_ms: int, task_type: str, priority: str, reason: str, error_document: bytes | None
) -> DeadLetterRow:
    error = read_error(error_document)
    pattern = pattern_of(task_type, reason, error.message or reason)
    message = normalised(error.message) or reason
    return DeadLetterRow(task_id, died_ms, task_type, priority, reason, pattern, message, error.retriable)


def by_pattern(deaths: Sequence[DeadLetterRow]) -> list[tuple[str, str, str, str, int, int, int]]:
    """Returns rows of `dead_letter_patterns`: the first and last death, and the number of deaths of each pattern."""
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
