"""Requests of code that blocks, over urllib3; threads may share them."""

import contextlib
import os
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, ProtocolError, SSLError
from urllib3.exceptions import TimeoutError as TimedOut

from tideq.client.http.endpoint import Endpoint, proxy_for, trust
from tideq.client.http.exchange import (
    IDLE_SECONDS,
    PIECE_BYTES,
    BodyPieces,
    ExchangeFailed,
    HttpRequest,
    Lost,
    Misunderstood,
    Response,
    Stale,
    Timeouts,
    Unsent,
)

NO_RETRIES = urllib3.Retry.from_int(False, redirect=False)
NO_BODY = (204, 304)
FRAMING = ("Content-Length", "Transfer-Encoding")
DRIVER_ERRORS = (HTTPError, OSError, ValueError)


class Http:
    """One service, as many connections as there are requests at a time, kept for the next ones."""

    def __init__(
        self, endpoint: Endpoint, timeouts: Timeouts, verify: ssl.SSLContext | bool, max_connections: int
    ) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._max_connections = max_connections
        self._proxy = proxy_for(endpoint)
        self._tls = trust(verify) if endpoint.is_secure else None
        self._is_closed = False
        self._streams = WeakSet[ResponseStream]()
        self._begin()

    def request(self, request: HttpRequest) -> Response:
        """Raises ExchangeFailed. An unrepeatable request gets a new connection: kept ones may end upon it."""
        if self._process != os.getpid():
            self._begin()
        slots = self._slots
        if not slots.acquire(timeout=self._timeouts.pool):
            raise Unsent(f"all {self._max_connections} connections were busy for {self._timeouts.pool:g} s")
        try:
            if request.is_repeatable:
                return self._exchange(self._pool, request)
            with contextlib.closing(self._new_pool(1)) as pool:
                return self._exchange(pool, request)
        finally:
            slots.release()

    def open_stream(self, request: HttpRequest) -> "ResponseStream":
        """Returns a response that is still being received, over a connection of its own; the caller must close it."""
        pool = self._new_pool(1)
        try:
            stream = ResponseStream(pool, self._send(pool, request))
        except DRIVER_ERRORS as error:
            pool.close()
            raise failure(error) from error
        except BaseException:
            pool.close()
            raise
        self._streams.add(stream)
        return stream

    def close(self) -> None:
        """A request in flight in another thread ends with its response; a waiting one is refused."""
        self._is_closed = True
        self._pool.close()
        for stream in list(self._streams):
            stream.close()

    def _begin(self) -> None:
        """Also after a fork: connections and locks are the parent's."""
        self._process = os.getpid()
        self._slots = threading.Semaphore(self._max_connections)
        self._pool = self._new_pool(self._max_connections)

    def _new_pool(self, size: int) -> urllib3.HTTPConnectionPool:
        manager = urllib3.PoolManager() if self._proxy is None else _proxy_manager(self._proxy)
        options = {"maxsize": size, **({"ssl_context": self._tls} if self._tls else {})}
        pool = manager.connection_from_host(self._endpoint.host, self._endpoint.port, self._endpoint.scheme, options)
        kind: Any = SecureConnection if pool.scheme == "https" else PlainConnection
        pool.ConnectionCls = kind
        pool.conn_kw |= {"write_seconds": self._timeouts.write, "refuse_if_closed": self._refuse_if_closed}
        return pool

    def _refuse_if_closed(self) -> None:
        """Called again after each wait: the client may have been closed meanwhile."""
        if self._is_closed:
            raise RuntimeError("the client is closed")

    def _exchange(self, pool: urllib3.HTTPConnectionPool, request: HttpRequest) -> Response:
        try:
            return whole(self._send(pool, request))
        except DRIVER_ERRORS as error:
            raise failure(error) from error

    def _send(self, pool: urllib3.HTTPConnectionPool, request: HttpRequest) -> urllib3.BaseHTTPResponse:
        """Returns once the head of the response is here. An HTTP proxy needs the whole URL."""
        self._refuse_if_closed()
        endpoint = self._endpoint
        origin = endpoint.origin if self._proxy and not endpoint.is_secure else ""
        return pool.urlopen(
            request.method,
            origin + endpoint.target(request),
            body=request.body,
            headers={**endpoint.headers, **request.headers},
            timeout=urllib3.Timeout(connect=self._timeouts.connect, read=self._timeouts.read + request.waits_seconds),
            retries=NO_RETRIES,
            redirect=False,
            assert_same_host=False,
            preload_content=False,
        )


class ResponseStream:
    """A response that is still being received."""

    def __init__(self, pool: urllib3.HTTPConnectionPool, response: urllib3.BaseHTTPResponse) -> None:
        self._pool = pool
        self._response = response
        self.is_success = 200 <= response.status < 300
        self.content_type = response.headers.get("Content-Type", "")

    def whole(self) -> Response:
        """The rest of a response that ends."""
        try:
            return whole(self._response)
        except DRIVER_ERRORS as error:
            raise failure(error) from error
        finally:
            self.close()

    def more(self) -> bytes:
        """Raises Lost at the end."""
        try:
            piece = self._response.read1(PIECE_BYTES)
        except DRIVER_ERRORS as error:
            raise Lost(str(error) or type(error).__name__) from error
        if not piece:
            raise Lost("the response ended")
        return piece

    def close(self) -> None:
        self._response.close()
        self._pool.close()


class PlainConnection(HTTPConnection):
    """Limits its idle time and the time of each piece sent, and tells a kept connection that ended from a new one."""

    def __init__(self, *args: Any, write_seconds: float, refuse_if_closed: Callable[[], None], **options: Any) -> None:
        super().__init__(*args, **options)
        self._write_seconds = write_seconds
        self._refuse_if_closed = refuse_if_closed
        self._used_at: float | None = None

    @property
    def is_connected(self) -> bool:
        is_fresh = self._used_at is not None and time.monotonic() - self._used_at < IDLE_SECONDS
        return is_fresh and super().is_connected

    def connect(self) -> None:
        self._used_at = None
        try:
            super().connect()
        except (HTTPError, OSError, UnicodeError) as error:
            raise Unsent(str(error.__cause__ or error) or type(error).__name__) from error
        self._refuse_if_closed()
        self.is_verified = True  # or the caller did not want that: no warning with each request

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        assert self.sock is not None
        self.sock.settimeout(self._write_seconds)
        for start in range(0, len(data), PIECE_BYTES):
            super().send(data[start : start + PIECE_BYTES])

    def getresponse(self) -> urllib3.HTTPResponse:
        try:
            response = super().getresponse()
        except ConnectionError as error:
            if self._used_at is None:
                raise
            raise Stale(str(error)) from error
        self._used_at = time.monotonic()
        return response


class SecureConnection(PlainConnection, HTTPSConnection):
    """The same over TLS."""


def _proxy_manager(proxy: str) -> urllib3.ProxyManager:
    """urllib3 does not read a name and a password in a proxy's URL."""
    parts = urlsplit(proxy)
    if not parts.username:
        return urllib3.ProxyManager(proxy)
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return urllib3.ProxyManager(proxy, proxy_headers=urllib3.make_headers(proxy_basic_auth=credentials))


def whole(response: urllib3.BaseHTTPResponse) -> Response:
    body = BodyPieces()
    try:
        for piece in response.stream(PIECE_BYTES):
            body.add(piece)
    except BaseException:
        response.close()
        raise
    if not body.size and response.status not in NO_BODY and not any(name in response.headers for name in FRAMING):
        raise Lost("the response ended before its body")  # perhaps within its head, which http.client takes for its end
    return Response(response.status, response.headers, body.joined())


def failure(error: Exception) -> ExchangeFailed:
    why = str(error) or type(error).__name__
    is_lost = isinstance(error, (ProtocolError, TimedOut, SSLError, OSError))
    return Lost(why) if is_lost else Misunderstood(why)
