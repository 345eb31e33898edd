"""A call as data: request, decoder of the response, whether it may be repeated. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from tideq.client.encoding import decode_as, encode
from tideq.client.errors import BadAnswer, Refusal
from tideq.client.http.exchange import HttpRequest, Params

T = TypeVar("T")
U = TypeVar("U")


def _no_result(_refusal: Refusal) -> None:
    return None


class Call(HttpRequest, Generic[T], frozen=True, kw_only=True):
    read: Callable[[bytes], T]
    """Decodes the body of the response."""
    result_of_refusal: Callable[[Refusal], T | None] = _no_result
    """The result, if a refusal after a lost response shows that the lost attempt was carried out."""


def answers(kind: type[T]) -> Callable[[bytes], T]:
    def read(body: bytes) -> T:
        try:
            return decode_as(body, kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadAnswer(f"the response is not from a TideQ service: {error}") from error

    return read


def then(read: Callable[[bytes], T], pick: Callable[[T], U]) -> Callable[[bytes], U]:
    """A decoder that returns `pick` of what `read` returns."""
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
    result_of_refusal: Callable[[Refusal], T | None] = _no_result,
) -> Call[T]:
    """Leaves out fields that are None."""
    given = {name: value for name, value in (fields or {}).items() if value is not None}
    return Call(
        method="POST",
        path=path,
        read=read,
        body=encode(given),
        waits_seconds=waits_seconds,
        is_repeatable=is_repeatable,
        result_of_refusal=result_of_refusal,
    )


def segment(name: str, value: str) -> str:
    """Quotes a path segment. Raises ValueError where empty; an unquoted dot segment would change the path."""
    if not value:
        raise ValueError(f"{name} is empty")
    return quote(value, safe="").replace(".", "%2E")


def params(**values: str | float | bool | datetime | Sequence[str] | None) -> Params:
    """Leaves out None and repeats a sequence."""
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
        raise ValueError(f"{value} has no time zone: use datetime.now(UTC)")
    return value.isoformat()
