"""One connection: its requests in the order of arrival, each answered before the next one starts."""

import asyncio
from collections import deque
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httptools
import msgspec
import uvicorn
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from tideq.api.app import hot_path_of
from tideq.api.edge.problems import MEDIA_TYPE, BadRequest, RequestError, problem_of
from tideq.api.http11.heads import address_of, check_coding, check_host, check_version
from tideq.api.http11.limits import LimitedProtocol
from tideq.api.http11.request_cycle import RequestCycle

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


class HttpConnection(LimitedProtocol):
    """uvicorn makes one for every connection, and calls `shutdown` when it stops."""

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
        self._hot_path = hot_path_of(self._app)
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
            self.refuse(reason if isinstance(reason, RequestError) else BadRequest("the request is not valid HTTP/1.1"))
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

    def refuse(self, error: RequestError) -> None:
        """Sends the error and ends the connection; within a response that has begun, the connection only ends.

        If a complete request is being answered, the error is in the data behind it: the response is sent first and the
        connection then ends without the error.
        """
        cycle = self._answering
        if cycle is not None and self._owes_answer:
            cycle.keeps_alive = False
        else:
            self._break_off(error)

    def _break_off(self, error: RequestError) -> None:
        cycle = self._answering
        if cycle is None or cycle.is_answered or not cycle.has_begun:
            self.transport.write(_refusal(error))
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
            raise BadRequest("the request has two Host headers; send one")
        else:
            check_host(value)
            self._host = value

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        parser, http_version = self._parser, self._parser.get_http_version()
        check_version(http_version)
        if self._coding is not None:
            check_coding(self._coding, http_version)
        address, named_host = address_of(self._url)
        if self._host is None and http_version == "1.1":
            raise BadRequest("the request has no Host header; HTTP/1.1 requires one")
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
            raise BadRequest(f"more than {MAX_WAITING} pipelined requests on one connection; wait for responses")

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
            self._break_off(BadRequest(f"too much data behind a waiting request; {TOO_FAR_AHEAD}"))

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
        task = self.loop.create_task(cycle.run(self._app, self._hot_path))
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)


def protocol_with(read_timeout_seconds: float, keep_alive_seconds: float) -> type[HttpConnection]:
    limits = {"read_timeout_seconds": read_timeout_seconds, "keep_alive_seconds": keep_alive_seconds}
    return type("HttpConnection", (HttpConnection,), limits)


def _refusal(error: RequestError) -> bytes:
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
