"""Patterns of dead letters: type, reason, and the message without the parts that differ between tasks. Pure."""

import hashlib
import re

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
