"""HTTP/1.1 as httptools reads it, with an end to what it reads: it knows no limit to a URL, a header or their number.

A request that is no HTTP at all, or whose head does not end, is refused with a problem document like any other.
"""

from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tideq.api.problems import MEDIA_TYPE, BadRequest, HeadTooLarge, RequestError, problem_of

MAX_HEAD_BYTES = 65_536


class BoundedProtocol(HttpToolsProtocol):
    """`Quiet` are bytes of which the parser has said nothing yet: an unfinished header, trailer or chunk extension."""

    _quiet_bytes = 0
    _header_bytes = 0
    _refusal: RequestError | None = None

    def data_received(self, data: bytes) -> None:
        self._quiet_bytes += len(data)
        super().data_received(data)
        if self._quiet_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refusal = _too_large()
            self.send_400_response("")

    def on_message_begin(self) -> None:
        self._quiet_bytes = self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name, value)
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._quiet_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._quiet_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """An answer that has begun cannot be taken back: then the connection just ends."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_answer(self._refusal or BadRequest("this is not HTTP/1.1")))
        self.transport.close()

    def _count(self, *parts: bytes) -> None:
        """Trailers count too. Raising inside the parser ends the request."""
        self._quiet_bytes = 0
        self._header_bytes += sum(map(len, parts))
        if self._header_bytes > MAX_HEAD_BYTES:
            self._refusal = _too_large()
            raise self._refusal


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"a request's head has at most {MAX_HEAD_BYTES} bytes")


def _answer(error: RequestError) -> bytes:
    document, _ = problem_of(error)
    body = msgspec.json.encode(document)
    lines = (
        f"HTTP/1.1 {document.status} {HTTPStatus(document.status).phrase}",
        f"content-type: {MEDIA_TYPE}",
        f"content-length: {len(body)}",
        "connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body
