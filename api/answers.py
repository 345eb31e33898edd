"""Answers as bytes: encoded once, by msgspec, so that kept documents pass through untouched."""

from typing import Any

import msgspec
from litestar import Response
from litestar.types import HTTPResponseBodyEvent

JSON = "application/json"
encode = msgspec.json.Encoder().encode


def json_answer(answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(encode(answer), status_code=status, media_type=JSON, headers=headers)


def created(answer: Any, location: str | None = None, headers: dict[str, str] | None = None) -> Response[bytes]:
    told = {**(headers or {}), **({"Location": location} if location else {})}
    return Response(encode(answer), status_code=201, media_type=JSON, headers=told)


def body_part(body: bytes, *, more: bool) -> HTTPResponseBodyEvent:
    """For answers that are sent in parts."""
    return {"type": "http.response.body", "body": body, "more_body": more}
