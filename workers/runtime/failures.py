"""The exceptions a handler may raise, and how any exception becomes an error document for the service."""

import contextlib
import traceback
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from tideq.client.encoding import is_lossy

MAX_TRACEBACK_BYTES = 16_000
MAX_MESSAGE_BYTES = 4_000
MAX_DETAILS_BYTES = 16_000
"""Sizes as JSON, up to six bytes a character. Their sum stays below the service's limit for an error."""
MAX_CODE_CHARACTERS = 64
MAX_DETAILS_NESTING = 16


class TaskFailure(Exception):
    """Base of the exceptions by which a handler decides what happens next; any other exception is retried."""

    is_retriable = True

    def __init__(self, message: str = "", code: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Retry(TaskFailure):
    """The task is tried again. A retry by choice does not count as a failure of its worker."""


class Fail(TaskFailure):
    """The task fails for good: a retry cannot succeed."""

    is_retriable = False


class Discard(TaskFailure):
    """The task becomes a dead letter at once; an operator may replay it."""

    is_retriable = False


class InvalidArguments(Fail):
    """The parameters do not match the handler's type hints; the message names the parameter."""


class CancelledByService(TaskFailure):
    """The task was cancelled, timed out or given to another worker while it ran: its result would be refused."""

    def __init__(self, message: str = "", code: str = "Cancelled", details: Any = None) -> None:
        super().__init__(message, code, details)


def error_document(error: BaseException) -> bytes:
    """Message, code, retriable flag and traceback as JSON within the service's limits. Never raises."""
    is_task_failure = isinstance(error, TaskFailure)
    name = type(error).__name__
    details: dict[str, Any] = {"traceback": traceback_of(error)}
    if isinstance(error, Retry):
        details["retry_requested"] = True
    if is_task_failure and error.details is not None:
        details["details"] = _encodable(error.details)
    document = {
        "message": _truncated(message_of(error), MAX_MESSAGE_BYTES) or name,
        "code": error_code(error),
        "retriable": error.is_retriable if is_task_failure else True,
        "details": details,
    }
    return msgspec.json.encode(document)


def error_code(error: BaseException) -> str:
    """The code of a TaskFailure, else the name of the exception."""
    own = error.code if isinstance(error, TaskFailure) else ""
    return storable_text(str(own or type(error).__name__))[:MAX_CODE_CHARACTERS]


def code_in(document: bytes) -> str:
    return msgspec.json.decode(document)["code"]


def status_after(error: BaseException) -> str:
    """`failed` or `discarded`, the service's names for it."""
    return "discarded" if isinstance(error, Discard) else "failed"


def storable_text(text: str) -> str:
    """Escapes lone surrogates and NUL, which JSON or PostgreSQL cannot store."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def message_of(error: BaseException) -> str:
    try:
        return storable_text(str(error))
    except Exception:
        return ""


def traceback_of(error: BaseException) -> str:
    """The end of the traceback where it is too long."""
    text = storable_text("".join(traceback.format_exception(error)))
    return text if _size(text) <= MAX_TRACEBACK_BYTES else "…" + _truncated(text[::-1], MAX_TRACEBACK_BYTES)[::-1]


def _truncated(text: str, max_bytes: int) -> str:
    """The beginning of the text, at most `max_bytes` as JSON."""
    text = text[:max_bytes]
    while (excess := _size(text) - max_bytes) > 0:
        # A character takes at most six bytes, so at least this many must be cut.
        text = text[: len(text) - max(excess // 6, 1)]
    return text


def _size(text: str) -> int:
    return len(msgspec.json.encode(text))


def _encodable(details: Any) -> Any:
    """The details as JSON where nothing is lost by it, else their repr."""
    with contextlib.suppress(Exception):
        document = msgspec.json.encode(details, enc_hook=repr)
        is_whole = not is_lossy(details, document, repr)
        is_storable = is_whole and len(document) <= MAX_DETAILS_BYTES and b"\\u0000" not in document
        if is_storable and _is_within_nesting(msgspec.json.decode(document), MAX_DETAILS_NESTING):
            return msgspec.Raw(document)
    return _truncated(_repr_of(details), MAX_DETAILS_BYTES)


def _is_within_nesting(value: Any, levels: int) -> bool:
    parts: Iterable[Any] = ()
    if isinstance(value, dict | list):
        parts = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
    return levels > 0 and all(_is_within_nesting(part, levels - 1) for part in parts)


def _repr_of(details: Any) -> str:
    try:
        return storable_text(repr(details))
    except Exception:
        return f"details of type {type(details).__name__}, whose repr failed"
