"""The edge of the store's driver: every error it knows becomes one of ours, so that callers catch `QueueError` alone.

Which error a refusal becomes goes by the error's class and by the word the server begins it with, never by what else
its text says.
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
"""All of them: some are no `RedisError`."""
EDGE_ERRORS = (*DRIVER_ERRORS, OSError)
PASSING = (
    driver.BusyLoadingError,
    driver.ReadOnlyError,
    driver.ClusterDownError,
    driver.AskError,
    driver.TryAgainError,
    driver.SlotNotCoveredError,
)
"""The server did nothing, and will when its start, its fail-over or the move of its slots is over."""
PASSING_WORDS = frozenset(
    ("MISCONF", "LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "BUSY", "TRYAGAIN")
)
"""The same in the server's words: the driver has no class for some, and in a script's error it sees none."""
LOGIN = (driver.AuthenticationError, driver.AuthenticationWrongNumberOfArgsError)
REFUSALS = (driver.ResponseError, driver.DataError, driver.WatchError, driver.PubSubError, driver.LockError)
IN_SCRIPT = re.compile(r"(?:ERR )?Error running script .*?: -([A-Z]+) ")
"""How servers before Redis 7 wrap what a command in a script said."""


@contextlib.contextmanager
def store_errors() -> Generator[None]:
    """What the driver says, in the queue's words."""
    try:
        yield
    except EDGE_ERRORS as error:
        raise translated(error) from error


def translated(error: Exception) -> QueueError:
    """For any of the driver's errors; an `OSError` is a lost connection."""
    text = str(error)
    word = _word(text) if isinstance(error, driver.ResponseError) else ""
    if isinstance(error, driver.OutOfMemoryError) or word == "OOM":
        return StoreFull(OOM_RETRY_AFTER_MS)
    # While it makes a connection the driver wraps it in a lost one.
    if isinstance(error, LOGIN) or isinstance(error.__cause__, LOGIN):
        return StoreRefused(text, is_login=True)
    if isinstance(error, PASSING) or word in PASSING_WORDS:
        return StoreUnavailable(text, is_untouched=True)
    if isinstance(error, REFUSALS):
        return StoreRefused(text)
    is_untouched = isinstance(error, driver.RedisClusterException) or getattr(error, "is_unsent", False)
    return StoreUnavailable(text or type(error).__name__, is_untouched=is_untouched)


def mark_unsent(error: Any) -> None:
    """It came while a connection was being made: no command was sent yet."""
    error.is_unsent = True


def _word(text: str) -> str:
    found = IN_SCRIPT.match(text)
    return found[1] if found else text.partition(" ")[0]
