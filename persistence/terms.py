"""Search terms of a task. Pure.

A term names its kind, so that a tag never matches a parameter. A search of error texts finds those that have every word
of the query, in any order and case.
"""

import re
from collections.abc import Iterable

import msgspec

from tideq.queue_core.task import Definition

WORD = re.compile(r"\w+")
MAX_WORD_LENGTH = 64
MAX_WORDS = 100
MAX_VALUE_LENGTH = 256


class ErrorTerms(msgspec.Struct, frozen=True):
    """The fields of an error document that history uses; others are ignored."""

    message: str = ""
    code: str = ""
    retriable: bool = True


NO_ERROR = ErrorTerms()
decode_error = msgspec.json.Decoder(ErrorTerms).decode


def read_error(document: bytes | None) -> ErrorTerms:
    """Returns NO_ERROR for a document of another form: history keeps such an error, but no search finds it."""
    try:
        return decode_error(document) if document else NO_ERROR
    except (msgspec.DecodeError, RecursionError):
        return NO_ERROR


def tag_term(name: str, value: str) -> str:
    return f"tag:{name}={value}"


def parameter_term(task_type: str, name: str, value: str) -> str:
    return f"parameter:{task_type}.{name}={value[:MAX_VALUE_LENGTH]}"


def error_terms(text: str) -> list[str]:
    words = dict.fromkeys(word.lower()[:MAX_WORD_LENGTH] for word in WORD.findall(text))
    return [f"error:{word}" for word in list(words)[:MAX_WORDS]]


def definition_terms(definition: Definition) -> Iterable[str]:
    for name, value in (definition.tags or {}).items():
        yield tag_term(name, value)
    for name, value in (definition.searchable or {}).items():
        yield parameter_term(definition.task_type, name, value)
