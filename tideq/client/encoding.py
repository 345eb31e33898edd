"""Python values to JSON and back, so that numbers keep their digits.

Whole numbers of any size are `int`. A fraction becomes a `float` where that stands for the very digits that were
written, else a `Decimal`; a `Decimal` is written as a number.
"""

import functools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MARKS = (b"null", b"NaN", b"Infinity")

_encode = msgspec.json.Encoder(decimal_format="number").encode


def encode(value: Any) -> bytes:
    """Also takes dataclasses, msgspec structs, datetimes, UUIDs. Raises TypeError or ValueError for what JSON lacks."""
    body = _encode(value)
    if is_lossy(value, body):
        raise ValueError("JSON has no number for NaN or infinity")
    return body


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
    """Whether it holds a number that JSON has not; `body` and `enc_hook` are what it was written as, and with.

    msgspec writes NaN and infinities as null, and those of decimals as words. To look for them costs time, and most
    bodies hold neither.
    """
    if not any(mark in body for mark in MARKS):
        return False
    return _holds_no_number(msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=enc_hook, str_keys=True))


def _holds_no_number(plain: Any) -> bool:
    if isinstance(plain, dict):
        return any(map(_holds_no_number, plain.values()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(plain, (list, tuple)):
        return any(map(_holds_no_number, plain))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return isinstance(plain, (float, Decimal)) and not math.isfinite(plain)
