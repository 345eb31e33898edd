"""What a handler returned, as JSON."""

from typing import Any

import msgspec

from tideq.workers.runtime.failures import Fail

_encode = msgspec.json.Encoder().encode


def encode_result(value: Any) -> bytes:
    try:
        return _encode(value)
    except Exception as error:
        raise Fail(f"the result cannot be written as JSON: {error}", code="INVALID_RESULT") from error
