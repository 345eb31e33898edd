"""Words a task can be found by. Pure.

A term names its kind, so that a tag never answers for a parameter. Searching an error text means: every word of what is
asked for occurs in it, in any order and either case.
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
    """What matters of an error document here; everything else in it is passed over."""

    message: str = ""
    code: str = ""
    retriable: bool = True


NO_ERROR = ErrorTerms()
decode_error = msgspec.json.Decoder(ErrorTerms).decode


def read_error(document: bytes | None) -> ErrorTerms:
    """An error that is not what workers are asked to send is kept all the same, and found by nothing."""
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
