"""Converts Python values to JSON and back without losing digits of numbers.

Integers of any size are `int`. A fraction becomes a `float` where the float has exactly the written digits, else a
`Decimal`; a `Decimal` is written as a number.
"""

import functools
import math
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_encode = msgspec.json.Encoder(decimal_format="number").encode


def encode(value: Any) -> bytes:
    """Returns JSON, also for dataclasses, structs, datetimes and UUIDs. Raises TypeError or ValueError otherwise."""
    body = _encode(value)
    # msgspec writes NaN and infinities as null; only a body with a null needs the slow check.
    if b"null" in body and is_lossy(value):
        raise ValueError("JSON cannot represent NaN or infinity")
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


def is_lossy(value: Any) -> bool:
    """Whether the value contains NaN or an infinity, which JSON cannot represent."""
    if isinstance(value, (float, Decimal)):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(is_lossy, value.values()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(is_lossy, value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return isinstance(value, msgspec.Struct) and any(map(is_lossy, msgspec.structs.astuple(value)))
