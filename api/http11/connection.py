"""One connection: its requests in the order they came, each answered before the next one begins."""

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
"""Of a body that the application has not asked for yet."""
MAX_AHEAD = 64
"""Requests that are sent before others are answered; beyond them nothing more is read."""
MAX_AHEAD_BYTES = 65_536
"""Of all of them."""
TOO_FAR_AHEAD = f"at most {MAX_AHEAD} requests and {MAX_AHEAD_BYTES} bytes may be"
MAX_WAITING = 1_000
"""Requests that one read may bring before others are answered."""
FRAMING = (b"content-length", b"transfer-encoding")
NOTED = frozenset((b"host", b"expect", b"transfer-encoding"))
"""Headers that are this protocol's business."""
ASGI = {"version": "3.0", "spec_version": "2.3"}


class HttpConnection(LimitedProtocol):
    """As uvicorn makes one for every connection, and talks to it when it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(_loop or asyncio.get_event_loop())
        self.server_state = server_state
        self._app: Any = vars(config)["loaded_app"]  # whose type uvicorn does not tell
        self._express = hot_path_of(self._app)
        self._app_state = app_state
        self._parser = httptools.HttpRequestParser(self)
        # What comes after a request that ends the connection is not read, and no reason to refuse that request.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._host: bytes | None = None
        self._coding: bytes | None = None
        self._expects_word = False
        self._reading: RequestCycle | None = None
        """Whose body comes."""
        self._answering: RequestCycle | None = None
        self._waiting = deque[RequestCycle]()
        """Requests that came before others were answered."""
        self._ahead_bytes = 0
        """What was read since the answer to the request before them is due."""
        self._can_write: asyncio.Event | None = None
        """While there is more to be sent than the other side takes."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        connections: set[Any] = self.server_state.connections
        connections.add(self)
        self._place = {
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
        for exchange in (self._answering, *self._waiting):
            if exchange is not None:
                exchange.disconnect()
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_ahead = self._is_owing_an_answer
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offered:
                self._decline(data[offered.args[0] :])
        except httptools.HttpParserError as error:
            reason = error.__context__
            self.refuse(reason if isinstance(reason, RequestError) else BadRequest("this is not HTTP/1.1"))
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
        """What is being answered still is."""
        if self._answering is None or self._answering.is_answered:
            self.transport.close()
        else:
            self._answering.keeps_alive = False

    def refuse(self, error: RequestError) -> None:
        """An answer that has begun cannot be taken back: then the connection just ends.

        Whatever comes behind a request that is there does not concern it: it is answered, and the connection then ends.
        """
        exchange = self._answering
        if exchange is not None and self._is_owing_an_answer:
            exchange.keeps_alive = False
        else:
            self._break_off(error)

    def _break_off(self, error: RequestError) -> None:
        exchange = self._answering
        if exchange is None or exchange.is_answered or not exchange.has_begun:
            self.transport.write(_refusal(error))
        if exchange is not None:
            exchange.disconnect()
        self.transport.close()

    # What the parser finds.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._url, self._headers, self._reading = b"", [], None
        self._host, self._coding, self._expects_word = None, None, False

    def on_url(self, url: bytes) -> None:
        self._header_bytes += len(url)
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._quiet_bytes = 0
        self._header_bytes += len(name) + len(value)
        if self._is_body:
            return
        name = name.lower()
        self._headers.append((name, value))
        if name in NOTED:
            self._note(name, value)

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"expect":
            self._expects_word = value.lower() == b"100-continue"
        elif name == b"transfer-encoding":
            self._coding = value if self._coding is None else b"%b, %b" % (self._coding, value)
        elif self._host is not None:
            raise BadRequest("a request has one Host header, and this one has two")
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
            raise BadRequest("a request in HTTP/1.1 has a Host header")
        if named_host is not None:
            self._headers = [(name, named_host if name == b"host" else value) for name, value in self._headers]
        keeps_alive = http_version != "1.0" and parser.should_keep_alive() and not parser.should_upgrade()
        scope = {
            **self._place,
            "http_version": http_version,
            "method": parser.get_method().decode(),
            **address,
            "headers": self._headers,
            "state": self._app_state.copy(),
        }
        expects_word = self._expects_word and http_version != "1.0"
        exchange = RequestCycle(self, scope, keeps_alive=keeps_alive, expects_word=expects_word)
        self._reading = exchange
        if self._answering is None or self._answering.is_answered:
            self._start(exchange)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append(exchange)
        else:
            raise BadRequest(f"no more than {MAX_WAITING} requests may wait for their turn")

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        reading = self._reading
        if reading is not None and reading.feed(body) > MAX_UNREAD_BYTES and reading is self._answering:
            self._pause_reading()

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return  # so the parser thinks; see below
        super().on_message_complete()
        if self._reading is not None:
            self._reading.end_body()
            if self._reading.is_answered:  # without its body
                self.rest()

    def _decline(self, rest: bytes) -> None:
        """An upgrade: the request is answered as it is, and is the connection's last.

        httptools takes what follows for the other protocol. Java's own client offers HTTP/2 with every request, and
        what follows is its body: it is read by a parser that does not know of the offer, and nothing after it.
        """
        found = {"on_header": self.on_header, "on_body": self.on_body, "on_message_complete": self.on_message_complete}
        self._parser = httptools.HttpRequestParser(SimpleNamespace(**found))
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        framing = [b"%b: %b\r\n" % header for header in self._headers if header[0] in FRAMING]
        self._parser.feed_data(b"POST / HTTP/1.1\r\nconnection: close\r\n%b\r\n%b" % (b"".join(framing), rest))

    # What an exchange needs.

    @property
    def is_full(self) -> bool:
        return self._can_write is not None

    async def drain(self) -> None:
        """Until the other side takes more."""
        if self._can_write is not None:
            await self._can_write.wait()

    def resume_reading(self) -> None:
        """Not while others wait: a client that keeps sending requests would have us keep them."""
        if self.is_read_paused and not self._waiting and self._ahead_bytes <= MAX_AHEAD_BYTES:
            self.is_read_paused = False
            self.transport.resume_reading()

    def see_it_leave(self) -> None:
        """The end of the connection is seen only while what comes before it is read."""
        if self.is_read_paused:
            self._break_off(BadRequest(f"too much is sent behind a request that waits: {TOO_FAR_AHEAD}"))

    def answered(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        following = self._waiting.popleft() if self._waiting else None
        if not self._waiting:
            self._ahead_bytes = 0
        if following is not None:
            self._start(following)
        elif self._unfinished_since is None:
            self.rest()
        self.resume_reading()

    def _pause_reading(self) -> None:
        if not self.is_read_paused:
            self.is_read_paused = True
            self.transport.pause_reading()

    @property
    def _is_owing_an_answer(self) -> bool:
        """To a request that is there."""
        exchange = self._answering
        return exchange is not None and exchange.is_whole and not exchange.is_answered

    def _note_ahead(self, size: int) -> None:
        self._ahead_bytes += size
        if self._ahead_bytes > MAX_AHEAD_BYTES or len(self._waiting) > MAX_AHEAD:
            self._pause_reading()
            if self._answering is not None and self._answering.is_watched:
                self.see_it_leave()

    def _start(self, exchange: RequestCycle) -> None:
        self._answering = exchange
        task = self.loop.create_task(exchange.run(self._app, self._express))
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)


def protocol_with(patience_seconds: float, keep_alive_seconds: float) -> type[HttpConnection]:
    limits = {"patience_seconds": patience_seconds, "keep_alive_seconds": keep_alive_seconds}
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
