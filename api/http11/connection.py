"""One connection: its requests in the order of arrival, each answered before the next one starts."""

import asyncio
import functools
import re
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from tideq.api.http11.limits import LimitedProtocol, RefusedRequest
from tideq.api.http11.request_cycle import RequestCycle

Refusal = Callable[[int, str], tuple[str, bytes]]
"""Makes the media type and the body of a refusal from its status and detail."""

MAX_UNREAD_BYTES = 65_536
"""Of a body that the application has not read yet."""
MAX_AHEAD = 64
"""Pipelined requests; beyond them nothing more is read."""
MAX_AHEAD_BYTES = 65_536
"""Of all pipelined requests together."""
TOO_FAR_AHEAD = f"send at most {MAX_AHEAD} requests and {MAX_AHEAD_BYTES} bytes ahead"
MAX_WAITING = 1_000
"""Pipelined requests that a single read may bring."""
FRAMING = (b"content-length", b"transfer-encoding")
OWN_HEADERS = frozenset((b"host", b"expect", b"transfer-encoding"))
"""Headers that this protocol interprets."""
ASGI = {"version": "3.0", "spec_version": "2.3"}
VERSIONS = ("1.1", "1.0")
HOST = re.compile(rb"(?:[0-9A-Za-z._~!$&'()*+,;=%-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
PLAIN_URL = re.compile(rb"/(?!/)[0-9A-Za-z/_.~-]*")
"""A target that is only a path and needs no parsing."""


class HttpConnection(LimitedProtocol):
    """uvicorn makes one for every connection, and calls `shutdown` when it stops."""

    @staticmethod
    @abstractmethod
    def refusal(status: int, detail: str) -> tuple[str, bytes]:
        """Media type and body of a refusal."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(_loop or asyncio.get_event_loop())
        self.server_state = server_state
        self._app: Any = vars(config)["loaded_app"]  # untyped in uvicorn
        self._app_state = app_state
        self._parser = httptools.HttpRequestParser(self)
        # Data after a request that ends the connection is ignored, and must not fail that request.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._host: bytes | None = None
        self._coding: bytes | None = None
        self._expects_continue = False
        self._reading: RequestCycle | None = None
        """The request whose body is being received."""
        self._answering: RequestCycle | None = None
        self._waiting = deque[RequestCycle]()
        """Pipelined requests."""
        self._ahead_bytes = 0
        """Bytes read since the request being answered was complete."""
        self._can_write: asyncio.Event | None = None
        """Not None while the write buffer is full."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        connections: set[Any] = self.server_state.connections
        connections.add(self)
        self._base_scope = {
            "type": "http",
            "asgi": ASGI,
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
            "root_path": "",
        }

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        connections: set[Any] = self.server_state.connections
        connections.discard(self)
        self.resume_writing()
        for cycle in (self._answering, *self._waiting):
            if cycle is not None:
                cycle.disconnect()
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_ahead = self._owes_answer
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offered:
                self._decline_upgrade(data[offered.args[0] :])
        except httptools.HttpParserError as error:
            reason = error.__context__
            self.refuse(
                reason if isinstance(reason, RefusedRequest) else RefusedRequest("the request is not valid HTTP/1.1")
            )
        else:
            self.check_size()
        if is_ahead or self._waiting:
            self._note_ahead(len(data))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._can_write = asyncio.Event()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._can_write is not None:
            self._can_write.set()
            self._can_write = None

    def shutdown(self) -> None:
        """Closes the connection, after the response under way if there is one."""
        if self._answering is None or self._answering.is_answered:
            self.transport.close()
        else:
            self._answering.keeps_alive = False

    def refuse(self, error: RefusedRequest) -> None:
        """Sends the error and ends the connection; within a response that has begun, the connection only ends.

        If a complete request is being answered, the error is in the data behind it: the response is sent first and the
        connection then ends without the error.
        """
        cycle = self._answering
        if cycle is not None and self._owes_answer:
            cycle.keeps_alive = False
        else:
            self._break_off(error)

    def _break_off(self, error: RefusedRequest) -> None:
        cycle = self._answering
        if cycle is None or cycle.is_answered or not cycle.has_begun:
            self.transport.write(self._written(error))
        if cycle is not None:
            cycle.disconnect()
        self.transport.close()

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._url, self._headers, self._reading = b"", [], None
        self._host, self._coding, self._expects_continue = None, None, False

    def on_url(self, url: bytes) -> None:
        self._header_bytes += len(url)
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._unparsed_bytes = 0
        self._header_bytes += len(name) + len(value)
        if self._is_body:
            return
        name = name.lower()
        self._headers.append((name, value))
        if name in OWN_HEADERS:
            self._note_header(name, value)

    def _note_header(self, name: bytes, value: bytes) -> None:
        if name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"
        elif name == b"transfer-encoding":
            self._coding = value if self._coding is None else b"%b, %b" % (self._coding, value)
        elif self._host is not None:
            raise RefusedRequest("the request has two Host headers; send one")
        else:
            _check_host(value)
            self._host = value

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        parser, http_version = self._parser, self._parser.get_http_version()
        _check_version(http_version)
        if self._coding is not None:
            _check_coding(self._coding, http_version)
        address, named_host = _address_of(self._url)
        if self._host is None and http_version == "1.1":
            raise RefusedRequest("the request has no Host header; HTTP/1.1 requires one")
        if named_host is not None:
            self._headers = [(name, named_host if name == b"host" else value) for name, value in self._headers]
        keeps_alive = http_version != "1.0" and parser.should_keep_alive() and not parser.should_upgrade()
        scope = {
            **self._base_scope,
            "http_version": http_version,
            "method": parser.get_method().decode(),
            **address,
            "headers": self._headers,
            "state": self._app_state.copy(),
        }
        expects_continue = self._expects_continue and http_version != "1.0"
        cycle = RequestCycle(self, scope, keeps_alive=keeps_alive, expects_continue=expects_continue)
        self._reading = cycle
        if self._answering is None or self._answering.is_answered:
            self._start(cycle)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append(cycle)
        else:
            raise RefusedRequest(f"more than {MAX_WAITING} pipelined requests on one connection; wait for responses")

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        reading = self._reading
        if reading is not None and reading.feed(body) > MAX_UNREAD_BYTES and reading is self._answering:
            self._pause_reading()

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # the body follows, see `_decline_upgrade`
        super().on_message_complete()
        if self._reading is not None:
            self._reading.end_body()
            if self._reading.is_answered:  # before its body was received
                self.mark_idle()

    def _decline_upgrade(self, rest: bytes) -> None:
        """Answers a request that offers an upgrade as an ordinary one, which is the connection's last.

        httptools takes the bytes after the head for the other protocol. Java's own client offers HTTP/2 with every
        request, and these bytes are its body: a second parser, without the Upgrade header, reads it.
        """
        found = {"on_header": self.on_header, "on_body": self.on_body, "on_message_complete": self.on_message_complete}
        self._parser = httptools.HttpRequestParser(SimpleNamespace(**found))
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        framing = [b"%b: %b\r\n" % header for header in self._headers if header[0] in FRAMING]
        self._parser.feed_data(b"POST / HTTP/1.1\r\nconnection: close\r\n%b\r\n%b" % (b"".join(framing), rest))

    # Called by the request cycle.

    @property
    def is_full(self) -> bool:
        return self._can_write is not None

    async def drain(self) -> None:
        """Returns when the write buffer has room."""
        if self._can_write is not None:
            await self._can_write.wait()

    def resume_reading(self) -> None:
        """Does nothing while pipelined requests wait: a client must not fill our memory with them."""
        if self.is_read_paused and not self._waiting and self._ahead_bytes <= MAX_AHEAD_BYTES:
            self.is_read_paused = False
            self.transport.resume_reading()

    def watch_disconnect(self) -> None:
        """Ends the connection if reading is paused: a disconnect is noticed only while reading."""
        if self.is_read_paused:
            self._break_off(RefusedRequest(f"too much data behind a waiting request; {TOO_FAR_AHEAD}"))

    def on_answered(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        following = self._waiting.popleft() if self._waiting else None
        if not self._waiting:
            self._ahead_bytes = 0
        if following is not None:
            self._start(following)
        elif self._unfinished_since is None:
            self.mark_idle()
        self.resume_reading()

    def _pause_reading(self) -> None:
        if not self.is_read_paused:
            self.is_read_paused = True
            self.transport.pause_reading()

    @property
    def _owes_answer(self) -> bool:
        """Whether a complete request is being answered."""
        cycle = self._answering
        return cycle is not None and cycle.is_whole and not cycle.is_answered

    def _note_ahead(self, size: int) -> None:
        self._ahead_bytes += size
        if self._ahead_bytes > MAX_AHEAD_BYTES or len(self._waiting) > MAX_AHEAD:
            self._pause_reading()
            if self._answering is not None and self._answering.is_watched:
                self.watch_disconnect()

    def _start(self, cycle: RequestCycle) -> None:
        self._answering = cycle
        task = self.loop.create_task(cycle.run(self._app))
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)

    def _written(self, error: RefusedRequest) -> bytes:
        media_type, body = self.refusal(error.status, str(error))
        lines = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
            f"content-type: {media_type}",
            f"content-length: {len(body)}",
            "connection: close",
            "",
            "",
        )
        return "\r\n".join(lines).encode() + body


def protocol_with(refusal: Refusal, read_timeout_seconds: float, keep_alive_seconds: float) -> type[HttpConnection]:
    """The protocol for uvicorn's `http` option."""
    given = {
        "refusal": staticmethod(refusal),
        "read_timeout_seconds": read_timeout_seconds,
        "keep_alive_seconds": keep_alive_seconds,
    }
    return type("HttpConnection", (HttpConnection,), given)


def _check_version(version: str) -> None:
    if version == "0.9":
        raise RefusedRequest("the request has no HTTP version; use HTTP/1.1")
    if version not in VERSIONS:
        raise RefusedRequest(f"HTTP/{version} is not supported; use HTTP/1.1", 505)


@functools.lru_cache(maxsize=1_024)
def _check_host(host: bytes) -> None:
    """Checks the grammar only; the application decides later whether the host is allowed."""
    if not HOST.fullmatch(host):
        raise RefusedRequest("the Host header must be a host, or a host and a port")


def _check_coding(coding: bytes, version: str) -> None:
    """A body in any other coding would reach the application undecoded."""
    if version == "1.0":
        raise RefusedRequest("HTTP/1.0 has no Transfer-Encoding; send a Content-Length")
    if coding.strip().lower() != b"chunked":
        raise RefusedRequest(
            f"Transfer-Encoding {coding.decode('latin-1')[:100]!r} is not supported; use `chunked` alone", 501
        )


def _address_of(url: bytes) -> tuple[dict[str, Any], bytes | None]:
    """The ASGI scope's part for a request target, and the host in the target, which overrides the Host header."""
    if PLAIN_URL.fullmatch(url):
        return {"path": url.decode(), "raw_path": url, "query_string": b""}, None
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    address = {
        "path": unquote(path) if "%" in path else path,
        "raw_path": parsed.path,
        "query_string": parsed.query or b"",
    }
    return address, _host_of(parsed)


def _host_of(parsed: Any) -> bytes | None:
    if parsed.userinfo is not None:
        raise RefusedRequest("the request target must not contain a user name")
    if parsed.host is None:
        return None
    host = b"[%b]" % parsed.host if b":" in parsed.host else parsed.host
    return b"%b:%d" % (host, parsed.port) if parsed.port else host
