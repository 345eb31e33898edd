"""A call as data: what to send, how to read the answer, whether it may be sent again. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from tideq.client.encoding import decode_as, encode
from tideq.client.errors import BadAnswer, Refusal

T = TypeVar("T")
U = TypeVar("U")
Params = tuple[tuple[str, str], ...]


def _not_settled(_refusal: Refusal) -> None:
    return None


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    method: str
    path: str
    read: Callable[[bytes], T]
    """From the answer's body."""
    params: Params = ()
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    waits_seconds: float = 0.0
    """How much longer than others the answer may take."""
    is_repeatable: bool = True
    """Whether a repeated call does no more, and is answered no otherwise, than one."""
    settled: Callable[[Refusal], T | None] = _not_settled
    """What a refusal means after an attempt whose answer was lost: perhaps that that one was carried out."""


def answers(kind: type[T]) -> Callable[[bytes], T]:
    def read(body: bytes) -> T:
        try:
            return decode_as(body, kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadAnswer(f"the answer is no TideQ service's: {error}") from error

    return read


def then(read: Callable[[bytes], T], pick: Callable[[T], U]) -> Callable[[bytes], U]:
    """The answer, and what of it is wanted."""
    return lambda body: pick(read(body))


def get(path: str, read: Callable[[bytes], T], params: Params = (), waits_seconds: float = 0.0) -> Call[T]:
    return Call(method="GET", path=path, read=read, params=params, waits_seconds=waits_seconds)


def post(
    path: str,
    read: Callable[[bytes], T],
    fields: Mapping[str, Any] | None = None,
    *,
    waits_seconds: float = 0.0,
    is_repeatable: bool = True,
    settled: Callable[[Refusal], T | None] = _not_settled,
) -> Call[T]:
    """Fields that are None are left out."""
    given = {name: value for name, value in (fields or {}).items() if value is not None}
    return Call(
        method="POST",
        path=path,
        read=read,
        body=encode(given),
        waits_seconds=waits_seconds,
        is_repeatable=is_repeatable,
        settled=settled,
    )


def segment(name: str, value: str) -> str:
    """A part of a path. An empty one, or dots, would lead to another call."""
    if not value:
        raise ValueError(f"{name} is empty")
    return quote(value, safe="").replace(".", "%2E")


def params(**values: str | float | bool | datetime | Sequence[str] | None) -> Params:
    """None is left out, a sequence is repeated."""
    return tuple((name, text) for name, value in values.items() for text in _texts(value))


def _texts(value: str | float | bool | datetime | Sequence[str] | None) -> Iterable[str]:
    if value is None:
        return ()
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, datetime):
        return (instant(value),)
    if isinstance(value, (int, float)):
        return (f"{value:g}",)
    return (value,) if isinstance(value, str) else value


def instant(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValueError(f"{value} says no time zone: try datetime.now(UTC)")
    return value.isoformat()
