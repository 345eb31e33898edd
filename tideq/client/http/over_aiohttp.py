"""Requests of code that runs in an asyncio loop, over aiohttp."""

import asyncio
import contextlib
import functools
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from weakref import WeakSet

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_exceptions import ContentEncodingError
from yarl import URL

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

NOTHING_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError)
CLOSE_SECONDS = 1.0
DRIVER_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class AsyncHttp:
    """One service, as many connections as there are requests at a time, kept for the next ones.

    Connections belong to the loop they were made in. Several loops may send at once, each in its thread and each over
    as many connections as are allowed.
    """

    def __init__(
        self, endpoint: Endpoint, timeouts: Timeouts, verify: ssl.SSLContext | bool, max_connections: int
    ) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._max_connections = max_connections
        self._proxy = proxy_for(endpoint)
        self._tls = trust(verify) if endpoint.is_secure else True
        self._is_closed = False
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        self._sessions = WeakSet[_Session]()
        self._changing = threading.Lock()

    async def request(self, request: HttpRequest) -> Response:
        """Raises ExchangeFailed. An unrepeatable request gets a new connection: kept ones may end upon it."""
        pool = self._pool()
        await pool.enter(self._timeouts.pool)
        try:
            if request.is_repeatable:
                return await self._exchange(pool.session, request)
            async with self._new_session(is_kept=False) as session:
                return await self._exchange(session, request)
        finally:
            pool.slots.release()

    async def open_stream(self, request: HttpRequest) -> "AsyncResponseStream":
        """Returns a response that is still being received, over a connection of its own; the caller must close it."""
        session = self._new_session(is_kept=False)
        try:
            return AsyncResponseStream(session, await self._send(session, request))
        except DRIVER_ERRORS as error:
            await session.aclose()
            raise failure(error) from error
        except BaseException:
            await session.aclose()
            raise

    async def aclose(self) -> None:
        """Breaks off requests in flight, in other loops too."""
        with self._changing:
            self._is_closed = True
            self._pools = {}
        for session in list(self._sessions):
            if session.loop is asyncio.get_running_loop():
                await session.aclose()
            elif not session.loop.is_closed():
                asyncio.run_coroutine_threadsafe(session.aclose(), session.loop)

    def _pool(self) -> "_Pool":
        self._refuse_if_closed()
        loop = asyncio.get_running_loop()
        return self._pools.get(loop) or self._new_pool(loop)

    def _new_pool(self, loop: asyncio.AbstractEventLoop) -> "_Pool":
        """Drops the pools of loops that have ended, too: nothing announces their end."""
        session = self._new_session(is_kept=True)
        with self._changing:
            self._pools = {each: pool for each, pool in self._pools.items() if not each.is_closed()}
            pool = self._pools[loop] = _Pool(session, self._max_connections)
            return pool

    def _new_session(self, *, is_kept: bool) -> "_Session":
        if is_kept:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls, keepalive_timeout=IDLE_SECONDS)
        else:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._tls, force_close=True)
        session = _Session(connector, self._endpoint.headers)
        self._sessions.add(session)
        return session

    def _refuse_if_closed(self) -> None:
        """Called again after each wait: the client may have been closed meanwhile."""
        if self._is_closed:
            raise RuntimeError("the client is closed")

    async def _exchange(self, session: "_Session", request: HttpRequest) -> Response:
        try:
            self._refuse_if_closed()
            async with await self._send(session, request) as response:
                return await whole(response)
        except Stale as error:
            if self._is_closed:
                raise Lost("the client was closed") from error
            raise
        except DRIVER_ERRORS as error:
            raise failure(error) from error

    async def _send(self, session: "_Session", request: HttpRequest) -> aiohttp.ClientResponse:
        """Returns once the head of the response is here."""
        if request.body is None or len(request.body) <= PIECE_BYTES:
            return await self._request(session, request, request.headers, request.body)
        headers = {**request.headers, "Content-Length": str(len(request.body))}
        async with asyncio.timeout(None) as deadline:
            pieces = in_pieces(request.body, deadline, self._timeouts.write)
            return await self._request(session, request, headers, pieces)

    async def _request(
        self,
        session: "_Session",
        request: HttpRequest,
        headers: Mapping[str, str],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> aiohttp.ClientResponse:
        return await session.client.request(
            request.method,
            URL(self._endpoint.origin + self._endpoint.target(request), encoded=True),
            headers=headers,
            data=body,
            timeout=client_timeout(self._timeouts.connect, self._timeouts.read + request.waits_seconds),
            proxy=self._proxy,
            allow_redirects=False,
        )


class AsyncResponseStream:
    """A response that is still being received."""

    def __init__(self, session: "_Session", response: aiohttp.ClientResponse) -> None:
        self._session = session
        self._response = response
        self.is_success = 200 <= response.status < 300
        self.content_type = response.headers.get("Content-Type", "")

    async def whole(self) -> Response:
        """The rest of a response that ends."""
        try:
            return await whole(self._response)
        except DRIVER_ERRORS as error:
            raise failure(error) from error
        finally:
            await self.aclose()

    async def more(self) -> bytes:
        """Raises Lost at the end."""
        try:
            piece = await self._response.content.readany()
        except DRIVER_ERRORS as error:
            raise Lost(str(error) or type(error).__name__) from error
        if not piece:
            raise Lost("the response ended")
        return piece

    async def aclose(self) -> None:
        self._response.close()
        await self._session.aclose()

    def __del__(self) -> None:
        self._response.close()


class _Session:
    """aiohttp's session of one loop; one that is dropped without `aclose` ends without aiohttp's warnings."""

    def __init__(self, connector: aiohttp.TCPConnector, headers: Mapping[str, str]) -> None:
        self.loop = asyncio.get_running_loop()
        self._connector = connector
        self.client = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=_ClientResponse,
        )

    async def __aenter__(self) -> "_Session":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Does not wait for a server that takes no more of a request."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.client.close()

    def __del__(self) -> None:
        self._connector.__exit__(None, None, None)


class _Pool:
    def __init__(self, session: _Session, max_connections: int) -> None:
        self.session = session
        self.slots = asyncio.Semaphore(max_connections)
        self._max_connections = max_connections

    async def enter(self, seconds: float) -> None:
        if not self.slots.locked():
            await self.slots.acquire()  # at once
            return
        try:
            async with asyncio.timeout(seconds):
                await self.slots.acquire()
        except TimeoutError as error:
            raise Unsent(f"all {self._max_connections} connections were busy for {seconds:g} s") from error


USED = WeakSet[object]()
"""Connections that a response came over."""


class _ClientResponse(aiohttp.ClientResponse):
    """Tells a kept connection that has ended from a new one.

    With errors of ours aiohttp does not send GET, PUT and DELETE again by itself: the retry policy decides that here.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        try:
            response = await super().start(connection)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            kind = Stale if protocol in USED else Lost
            raise kind(str(error) or type(error).__name__) from error
        USED.add(protocol)
        return response


@functools.lru_cache
def client_timeout(connect: float, read: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=read)


async def in_pieces(body: bytes, deadline: asyncio.Timeout, seconds: float) -> AsyncIterator[bytes]:
    """Moves the deadline on with each piece that the server takes."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(RuntimeError):  # the response came first, and its reader left the deadline
        for start in range(0, len(body), PIECE_BYTES):
            deadline.reschedule(loop.time() + seconds)
            yield body[start : start + PIECE_BYTES]
        deadline.reschedule(None)


async def whole(response: aiohttp.ClientResponse) -> Response:
    body = BodyPieces()
    async for piece in response.content.iter_any():
        body.add(piece)
    return Response(response.status, response.headers, body.joined())


def failure(error: Exception) -> ExchangeFailed:
    why = str(error) or type(error).__name__
    if isinstance(error, NOTHING_SENT):
        return Unsent(why)
    if isinstance(error.__cause__, ContentEncodingError) or isinstance(error, ValueError):
        return Misunderstood(why)
    return Lost(why)
