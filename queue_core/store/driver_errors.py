"""Translates the driver's errors, so that callers catch `QueueError` only.

The translation depends on the error's class and on the first word of the server's message, never on the rest of it.
"""

import contextlib
import re
from collections.abc import Generator
from typing import Any

from redis import exceptions as driver

from tideq.queue_core.errors import QueueError, StoreFull, StoreRefused, StoreUnavailable

OOM_RETRY_AFTER_MS = 5_000
DRIVER_ERRORS: tuple[type[Exception], ...] = tuple(
    each for each in vars(driver).values() if isinstance(each, type) and issubclass(each, Exception)
)
"""Every exception of the driver's module: some do not derive from `RedisError`."""
EDGE_ERRORS = (*DRIVER_ERRORS, OSError)
PASSING = (
    driver.BusyLoadingError,
    driver.ReadOnlyError,
    driver.ClusterDownError,
    driver.AskError,
    driver.TryAgainError,
    driver.SlotNotCoveredError,
)
"""The server did nothing, and accepts commands after its start, its fail-over or the move of its slots."""
PASSING_WORDS = frozenset(
    ("MISCONF", "LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "BUSY", "TRYAGAIN")
)
"""The same errors by the server's words: the driver has no class for some, and for none inside a script's error."""
UNSENT = (driver.RedisClusterException, driver.MaxConnectionsError)
LOGIN = (driver.AuthenticationError, driver.AuthenticationWrongNumberOfArgsError)
REFUSALS = (driver.ResponseError, driver.DataError, driver.WatchError, driver.PubSubError, driver.LockError)
IN_SCRIPT = re.compile(r"(?:ERR )?Error running script .*?: -([A-Z]+) ")
"""Form in which servers before Redis 7 report the error of a command in a script."""


@contextlib.contextmanager
def store_errors() -> Generator[None]:
    """Raises the driver's errors as `QueueError`."""
    try:
        yield
    except EDGE_ERRORS as error:
        raise translated(error) from error


def translated(error: Exception) -> QueueError:
    """Returns the error of the queue for any driver error; an `OSError` is a lost connection."""
    text = str(error)
    word = _word(text) if isinstance(error, driver.ResponseError) else ""
    if isinstance(error, driver.OutOfMemoryError) or word == "OOM":
        return StoreFull(OOM_RETRY_AFTER_MS)
    # The driver wraps a refused login in a ConnectionError while it connects.
    if isinstance(error, LOGIN) or isinstance(error.__cause__, LOGIN):
        return StoreRefused(text, is_login=True)
    if isinstance(error, PASSING) or word in PASSING_WORDS:
        return StoreUnavailable(text, is_untouched=True)
    if isinstance(error, REFUSALS):
        return StoreRefused(text)
    is_untouched = isinstance(error, UNSENT) or getattr(error, "is_unsent", False)
    return StoreUnavailable(text or type(error).__name__, is_untouched=is_untouched)


def mark_unsent(error: Any) -> None:
    """Mark an error that occurred before the command was sent."""
    error.is_unsent = True


def _word(text: str) -> str:
    found = IN_SCRIPT.match(text)
    return found[1] if found else text.partition(" ")[0]
