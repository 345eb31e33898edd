"""Through httpx: where a proxy is to be used, in loops that are not asyncio's, and for answers that do not end."""

from collections.abc import Mapping
from typing import Any

import httpx

from tideq.client.calls.base import Call, Params
from tideq.client.config import ClientConfig
from tideq.client.http.answers import Response
from tideq.client.http.exchange_failures import ExchangeFailed, Lost, Misunderstood, Unsent
from tideq.client.http.timeouts import Timeouts

MAX_IDLE = 20
NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
OUR_FAULT = (httpx.LocalProtocolError, httpx.UnsupportedProtocol)


class AsyncThroughHttpx:
    def __init__(self, connection: ClientConfig) -> None:
        self._connection = connection
        self._http = httpx.AsyncClient(
            headers=connection.headers,
            limits=httpx.Limits(max_connections=connection.max_connections, max_keepalive_connections=MAX_IDLE),
            verify=connection.verify,
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[Any], timeouts: Timeouts) -> Response:
        """Raises a Failure."""
        try:
            response = await self._http.request(
                call.method,
                self._connection.url + call.path,
                params=call.params,
                content=call.body,
                headers=call.headers,
                timeout=_in_httpx(timeouts),
            )
        except httpx.RequestError as error:
            raise failure(error) from error
        return Response(response.status_code, response.headers.raw, response.content)

    async def listen(
        self, path: str, params: Params, headers: Mapping[str, str], timeouts: Timeouts
    ) -> "AsyncLongAnswer":
        request = self._http.build_request(
            "GET", self._connection.url + path, params=params, headers=headers, timeout=_in_httpx(timeouts)
        )
        try:
            return AsyncLongAnswer(await self._http.send(request, stream=True))
        except httpx.RequestError as error:
            raise failure(error) from error


class AsyncLongAnswer:
    """An answer that has begun and goes on; to be closed by whoever asked."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._chunks = response.aiter_bytes()
        self.is_success = response.is_success
        self.content_type = response.headers.get("Content-Type", "")

    async def whole(self) -> Response:
        """For one that ends."""
        try:
            body = await self._response.aread()
        except httpx.RequestError as error:
            raise failure(error) from error
        return Response(self._response.status_code, self._response.headers.raw, body)

    async def more(self) -> bytes:
        """Raises Lost where it ends."""
        try:
            return await anext(self._chunks)
        except httpx.TransportError as error:
            raise Lost(repr(error)) from error
        except StopAsyncIteration:
            raise Lost("it ended") from None

    async def aclose(self) -> None:
        await self._response.aclose()


def failure(error: httpx.RequestError) -> ExchangeFailed:
    why = str(error) or type(error).__name__
    if isinstance(error, NOTHING_SENT):
        return Unsent(why)
    if isinstance(error, httpx.TransportError) and not isinstance(error, OUR_FAULT):
        return Lost(why)
    return Misunderstood(why)


def _in_httpx(timeouts: Timeouts) -> httpx.Timeout:
    return httpx.Timeout(connect=timeouts.connect, read=timeouts.read, write=timeouts.write, pool=timeouts.pool)
