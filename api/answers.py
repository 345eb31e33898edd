"""Answers as bytes: encoded once, by msgspec, so that kept documents pass through untouched."""

from typing import Any

import msgspec
from litestar import Response
from litestar.types import HTTPResponseBodyEvent, HTTPResponseStartEvent

JSON = "application/json"
encode = msgspec.json.Encoder().encode


def json_answer(answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response[bytes]:
    return Response(encode(answer), status_code=status, media_type=JSON, headers=headers)


def created(answer: Any, location: str | None = None, headers: dict[str, str] | None = None) -> Response[bytes]:
    told = {**(headers or {}), **({"Location": location} if location else {})}
    return Response(encode(answer), status_code=201, media_type=JSON, headers=told)


def head_of(answer: Response[bytes]) -> HTTPResponseStartEvent:
    """As Litestar writes it, for answers that are bytes and set no cookies."""
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers.append((b"content-type", (answer.media_type or JSON).encode()))
    headers.append((b"content-length", b"%d" % len(answer.content)))
    return {"type": "http.response.start", "status": answer.status_code or 200, "headers": headers}


def body_part(body: bytes, *, more: bool) -> HTTPResponseBodyEvent:
    """For answers that are sent in parts."""
    return {"type": "http.response.body", "body": body, "more_body": more}
