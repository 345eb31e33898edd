"""How a handler says what kind of failure it is, and how any exception is told to the service."""

import contextlib
import traceback
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from tideq.client.encoding import is_lossy

MAX_TRACEBACK_BYTES = 16_000
MAX_MESSAGE_BYTES = 4_000
MAX_DETAILS_BYTES = 16_000
"""As JSON, which may take six bytes for a character. Together they stay below what the service takes."""
MAX_CODE_CHARACTERS = 64
MAX_DETAILS_NESTING = 16


class TaskFailure(Exception):
    """Raise one of its kinds in a handler to decide what happens next; any other exception is a `Retry`."""

    is_retriable = True

    def __init__(self, message: str = "", code: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Retry(TaskFailure):
    """It may go better next time. The handler asks for it, so it does not count as a failure of its worker."""


class Fail(TaskFailure):
    """Trying again cannot mend it."""

    is_retriable = False


class Discard(TaskFailure):
    """Nobody shall try it again: it becomes a dead letter at once, to be looked at and perhaps sent back."""

    is_retriable = False


class InvalidArguments(Fail):
    """The parameters are not what the handler takes; the message says which."""


class Cancelled(TaskFailure):
    """The task was called off, timed out or given to another worker while it ran: nobody waits for its result."""


def error_document(error: BaseException) -> bytes:
    """As the service takes it: message, code, whether to try again, and the traceback. Never raises, never too long."""
    is_ours = isinstance(error, TaskFailure)
    name = type(error).__name__
    details: dict[str, Any] = {"traceback": traceback_of(error)}
    if isinstance(error, Retry):
        details["asked_for"] = True
    if is_ours and error.details is not None:
        details["details"] = _tellable(error.details)
    document = {
        "message": _first(words_of(error), MAX_MESSAGE_BYTES) or name,
        "code": error_code(error),
        "retriable": error.is_retriable if is_ours else True,
        "details": details,
    }
    return msgspec.json.encode(document)


def error_code(error: BaseException) -> str:
    """The handler's own, or the name of the exception."""
    own = error.code if isinstance(error, TaskFailure) else ""
    return plain(str(own or type(error).__name__))[:MAX_CODE_CHARACTERS]


def code_in(document: bytes) -> str:
    """Of an error document that was made here."""
    return msgspec.json.decode(document)["code"]


def status_after(error: BaseException) -> str:
    """How the attempt ended, as the service calls it."""
    return "discarded" if isinstance(error, Discard) else "failed"


def plain(text: str) -> str:
    """Without what no JSON and no database can hold: lone surrogates and NUL."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def words_of(error: BaseException) -> str:
    try:
        return plain(str(error))
    except Exception:
        return ""


def traceback_of(error: BaseException) -> str:
    """Its end is what matters when there is too much of it."""
    text = plain("".join(traceback.format_exception(error)))
    return text if _size(text) <= MAX_TRACEBACK_BYTES else "…" + _first(text[::-1], MAX_TRACEBACK_BYTES)[::-1]


def _first(text: str, max_bytes: int) -> str:
    """As much of the beginning as takes so many bytes as JSON."""
    text = text[:max_bytes]
    while (excess := _size(text) - max_bytes) > 0:
        # No character takes more than six bytes, so this much at least has to go.
        text = text[: len(text) - max(excess // 6, 1)]
    return text


def _size(text: str) -> int:
    return len(msgspec.json.encode(text))


def _tellable(details: Any) -> Any:
    """As JSON if it can be without a loss, else what Python would print of it."""
    with contextlib.suppress(Exception):
        document = msgspec.json.encode(details, enc_hook=repr)
        is_whole = not is_lossy(details, document, repr)
        is_fit = is_whole and len(document) <= MAX_DETAILS_BYTES and b"\\u0000" not in document
        if is_fit and _is_flat(msgspec.json.decode(document), MAX_DETAILS_NESTING):
            return msgspec.Raw(document)
    return _first(_printed(details), MAX_DETAILS_BYTES)


def _is_flat(value: Any, levels: int) -> bool:
    parts: Iterable[Any] = ()
    if isinstance(value, dict | list):
        parts = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
    return levels > 0 and all(_is_flat(part, levels - 1) for part in parts)


def _printed(details: Any) -> str:
    try:
        return plain(repr(details))
    except Exception:
        return f"details of type {type(details).__name__} that cannot be printed"
