"""Answers as bytes: encoded once, by msgspec, so that kept documents pass through untouched."""

from typing import Any

import msgspec
from litestar import Response

JSON = "application/json"
encode = msgspec.json.Encoder().encode


def json_answer(answer: Any, status: int = 200) -> Response[bytes]:
    return Response(encode(answer), status_code=status, media_type=JSON)


def created(answer: Any, location: str | None = None) -> Response[bytes]:
    headers = {"Location": location} if location else {}
    return Response(encode(answer), status_code=201, media_type=JSON, headers=headers)
