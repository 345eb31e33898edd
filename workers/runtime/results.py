"""What a handler returned, as JSON."""

from typing import Any

import msgspec

from tideq.client.encoding import is_lossy
from tideq.workers.runtime.failures import Fail

_encode = msgspec.json.Encoder().encode


def encode_result(value: Any) -> bytes:
    try:
        body = _encode(value)
        if is_lossy(value, body):
            raise ValueError("JSON has no number for NaN or infinity")
        return body
    except Exception as error:
        raise Fail(f"the result cannot be written as JSON: {error}", code="INVALID_RESULT") from error
