"""From bytes to an answer of HTTP/1.1. No input or output: connections of any kind feed it."""

import zlib
from typing import NamedTuple

import httptools

from tideq.client.http.exchange_failures import Lost, Misunderstood

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 1 << 30
"""A page of 1 000 tasks with the largest parameters there may be; a server that sends on and on is none of ours."""
BODY_ENDS_BY_ITSELF = (b"content-length", b"transfer-encoding")
ENCODING = b"content-encoding"
GZIP = 16 + zlib.MAX_WBITS


class Response(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    """As they came."""
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for found, value in self.headers if found.lower() == wanted), None)


class ResponseParser:
    """One answer. The `on_…` methods are httptools'."""

    def __init__(self) -> None:
        self.answer: Response | None = None
        self.has_begun = False
        """A byte of it came."""
        self.is_last = True
        """Nothing more can be asked on this connection."""
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = 0
        self._body_bytes = 0
        self._begin()

    def feed(self, data: bytes) -> bool:
        """Whether the answer is whole. Raises Lost for what is no HTTP, Misunderstood for what is too much."""
        self.has_begun = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_last = True
            if self.answer is None:
                is_upgrade = isinstance(error, httptools.HttpParserUpgrade)  # which says only where
                raise Lost(f"the answer is no HTTP: {'another protocol begins' if is_upgrade else error}") from error
        if self.answer is None:
            self._check_size(len(data))
            return False
        self._unpack()
        return True

    def end(self) -> bool:
        """The other side sends no more; whether that was the end of the answer."""
        if self._status >= 200 and not any(name.lower() in BODY_ENDS_BY_ITSELF for name, _ in self._headers):
            self.on_message_complete()
            self._unpack()
        self.is_last = True
        return self.answer is not None

    def on_message_begin(self) -> None:
        if self.answer is not None:  # a second one, which nobody asked for
            self.is_last = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.answer is None:
            self._headers.append((name, value))
            self._is_packed = self._is_packed or (len(name) == len(ENCODING) and name.lower() == ENCODING)

    def on_headers_complete(self) -> None:
        if self.answer is None:
            self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.answer is None:
            self._body.append(body)
            self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        if self.answer is not None:
            return
        if self._status < 200:  # "go on": the answer is still to come, for the same parser
            self._begin()
            return
        self.is_last = not self._parser.should_keep_alive()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self.answer = Response(self._status, self._headers, body)

    def _begin(self) -> None:
        self._status, self._headers, self._body = 0, list[tuple[bytes, bytes]](), list[bytes]()
        self._is_packed = False

    def _unpack(self) -> None:
        if self._is_packed and self.answer is not None:
            self.answer, self._is_packed = unpacked(self.answer), False

    def _check_size(self, more: int) -> None:
        if not self._status:
            self._head_bytes += more
        if self._head_bytes > MAX_HEAD_BYTES or self._body_bytes > MAX_BODY_BYTES:
            raise Misunderstood("the answer is larger than any of a TideQ service's")


def unpacked(answer: Response) -> Response:
    """As it was before somebody between compressed it. Of nothing there is nothing to unpack."""
    encoding = (answer.header("content-encoding") or "").strip().lower()
    if encoding in ("", "identity") or not answer.body:
        return answer
    if encoding not in ("gzip", "x-gzip"):
        raise Misunderstood(f"the answer is encoded as {encoding!r}, which was not asked for")
    unpacker = zlib.decompressobj(GZIP)
    try:
        body = unpacker.decompress(answer.body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise Misunderstood(f"the answer cannot be unpacked: {error}") from error
    if not unpacker.eof:
        raise Misunderstood("the answer cannot be unpacked: it is cut off, or too large")
    return answer._replace(body=body)
