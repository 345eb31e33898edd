"""How a handler says what kind of failure it is, and how any exception is told to the service."""

import traceback
from typing import Any

import msgspec

MAX_TRACEBACK_CHARACTERS = 16_000
MAX_MESSAGE_CHARACTERS = 4_000


class TaskFailure(Exception):
    """Raise one of its kinds in a handler to decide what happens next; any other exception is a `Retry`."""

    is_retriable = True

    def __init__(self, message: str = "", code: str = "", details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Retry(TaskFailure):
    """It may go better next time."""


class Fail(TaskFailure):
    """Trying again cannot mend it."""

    is_retriable = False


class InvalidArguments(Fail):
    """The parameters are not what the handler takes; the message says which."""


class Cancelled(TaskFailure):
    """The task was called off, timed out or given to another worker while it ran: nobody waits for its result."""


def error_document(error: BaseException) -> bytes:
    """As the service takes it: message, code, whether to try again, and the traceback."""
    is_ours = isinstance(error, TaskFailure)
    details = {"traceback": _traceback(error)}
    if is_ours and error.details is not None:
        details["details"] = error.details
    document = {
        "message": (str(error) or type(error).__name__)[:MAX_MESSAGE_CHARACTERS],
        "code": (error.code if is_ours and error.code else type(error).__name__)[:64],
        "retriable": error.is_retriable if is_ours else True,
        "details": details,
    }
    return msgspec.json.encode(document, enc_hook=repr)


def _traceback(error: BaseException) -> str:
    """Its end is what matters when there is too much of it."""
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= MAX_TRACEBACK_CHARACTERS else "…" + text[-MAX_TRACEBACK_CHARACTERS:]
