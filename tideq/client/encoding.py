"""Converts Python values to JSON and back without losing digits of numbers.

Integers of any size are `int`. A fraction becomes a `float` where the float has exactly the written digits, else a
`Decimal`; a `Decimal` is written as a number.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

SEARCHED_AT_ONCE = 100

_encode = msgspec.json.Encoder(decimal_format="number").encode


def encode(value: Any) -> bytes:
    """Returns JSON, also for dataclasses, structs, datetimes and UUIDs. Raises TypeError or ValueError otherwise."""
    body = _encode(value)
    if is_lossy(value, body):
        raise ValueError("JSON cannot represent NaN or infinity")
    return body


def encode_each(values: Iterable[Any]) -> Iterator[bytes]:
    """Encodes like `encode`, and looks for what JSON cannot represent in many values at once, which costs a tenth."""
    iterator = iter(values)
    while some := list(itertools.islice(iterator, SEARCHED_AT_ONCE)):
        bodies = list(map(_encode, some))
        if _may_be_lossy(b"".join(bodies)):
            bodies = list(map(encode, some))
        yield from bodies


def decode(body: bytes | msgspec.Raw) -> Any:
    return _decoder(Any).decode(body)


def decode_as(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    return _decoder(kind).decode(body)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, float_hook=_number)


def _number(digits: str) -> float | Decimal:
    number, exact = float(digits), Decimal(digits)
    return number if Decimal(repr(number)) == exact else exact


def is_lossy(value: Any, body: bytes, enc_hook: Callable[[Any], Any] | None = None) -> bool:
    """Whether the value contains NaN or an infinity; `body` is its encoding, made with `enc_hook`.

    msgspec writes NaN and infinities as null, and decimal ones as words: only a body with one of these needs the slow
    check.
    """
    if not _may_be_lossy(body):
        return False
    return _holds_no_number(msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=enc_hook, str_keys=True))


def _may_be_lossy(body: bytes) -> bool:
    return b"null" in body or b"NaN" in body or b"Infinity" in body


def _holds_no_number(plain: Any) -> bool:
    if isinstance(plain, dict):
        return any(map(_holds_no_number, plain.values()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(plain, (list, tuple)):
        return any(map(_holds_no_number, plain))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return isinstance(plain, (float, Decimal)) and not math.isfinite(plain)
