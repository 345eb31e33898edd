"""Every error of a driver becomes one of ours, and a driver that brings new ones is noticed here."""

from collections.abc import Iterator

import psycopg
import psycopg_pool
import pytest
from redis import exceptions as redis_errors

from tideq.persistence.database import TookTooLong, translated_errors
from tideq.queue_core.engine.store_errors import store_errors
from tideq.queue_core.errors import (
    HistoryRefused,
    HistoryUnavailable,
    QueueError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)

TEXT = "MISCONF and OOM stand in the middle of what a user wrote"


def kinds_below(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for each in kind.__subclasses__():
        yield from kinds_below(each)


def made(kind: type[Exception], text: str = "no") -> Exception:
    """Without the constructor: some take a slot, a node or a lock."""
    error = kind.__new__(kind)
    error.args = (text,)
    return error


STORE = [each for each in vars(redis_errors).values() if isinstance(each, type) and issubclass(each, Exception)]
HISTORY = sorted({*kinds_below(psycopg.Error), *kinds_below(psycopg_pool.PoolTimeout)}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", STORE, ids=lambda kind: kind.__name__)
def test_any_error_of_the_stores_driver_becomes_one_of_ours_with_its_cause(kind: type[Exception]) -> None:
    error = made(kind)

    with pytest.raises(QueueError) as caught, store_errors():
        raise error

    assert caught.value.__cause__ is error
    assert isinstance(caught.value, StoreUnavailable | StoreFull)


def test_any_error_of_historys_driver_becomes_one_of_ours_with_its_cause() -> None:
    assert len(HISTORY) > 200
    for kind in HISTORY:
        error = made(kind)

        with pytest.raises(HistoryUnavailable) as caught, translated_errors():
            raise error

        assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "expected", "is_untouched"),
    [
        (redis_errors.NoPermissionError("this user has no permissions"), StoreRefused, False),
        (redis_errors.ResponseError("WRONGTYPE Operation against a key"), StoreRefused, False),
        (redis_errors.ResponseError("user_script:3: Script attempted to access"), StoreRefused, False),
        (redis_errors.AuthenticationError("invalid username-password pair"), StoreRefused, False),
        (redis_errors.ResponseError("MISCONF Errors writing to the AOF file"), StoreUnavailable, True),
        (redis_errors.ResponseError("NOREPLICAS Not enough good replicas"), StoreUnavailable, True),
        (redis_errors.ReadOnlyError("You can't write against a read only replica."), StoreUnavailable, True),
        (redis_errors.ResponseError("OOM command not allowed"), StoreFull, False),
        (
            redis_errors.ResponseError("Error running script (call to f_1): @user_script:3: -OOM command not allowed"),
            StoreFull,
            False,
        ),
        (redis_errors.TimeoutError("no answer"), StoreUnavailable, False),
        (ConnectionResetError("gone"), StoreUnavailable, False),
        (redis_errors.ResponseError(f"WRONGTYPE {TEXT}"), StoreRefused, False),
        (redis_errors.ResponseError(TEXT.replace("MISCONF", "ERR MISCONF")), StoreRefused, False),
        (redis_errors.ConnectionError("lost while connecting to nobody"), StoreUnavailable, False),
    ],
    ids=str,
)
def test_what_the_store_says_is_judged_by_its_word_and_not_by_its_text(
    error: Exception, expected: type[QueueError], is_untouched: bool
) -> None:
    with pytest.raises(QueueError) as caught, store_errors():
        raise error

    assert type(caught.value) is expected
    assert getattr(caught.value, "is_untouched", False) == is_untouched


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction"), HistoryRefused),
        (psycopg.errors.InsufficientPrivilege("permission denied for table tasks"), HistoryRefused),
        (psycopg.OperationalError('FATAL:  password authentication failed for user "tideq"'), HistoryRefused),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), TookTooLong),
        (psycopg.errors.AdminShutdown("terminating connection"), HistoryUnavailable),
        (psycopg_pool.PoolTimeout("no connection"), HistoryUnavailable),
    ],
    ids=str,
)
def test_a_database_that_answers_and_will_not_refuses(error: Exception, expected: type[QueueError]) -> None:
    with pytest.raises(QueueError) as caught, translated_errors():
        raise error

    assert type(caught.value) is expected
