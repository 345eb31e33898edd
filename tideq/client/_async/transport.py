"""One HTTP client, opened with the first call, and the retries of calls."""

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from tideq.client.calls.base import Call
from tideq.client.config import ClientConfig
from tideq.client.error_mapping import refusal
from tideq.client.errors import TideqError
from tideq.client.http.exchange import ExchangeFailed, HttpRequest, Response, Stale
from tideq.client.retrying import RetryPolicy, RetryState

if TYPE_CHECKING:
    from tideq.client.http.over_aiohttp import AsyncHttp, AsyncResponseStream

T = TypeVar("T")


class AsyncTransport:
    def __init__(self, connection: ClientConfig, policy: RetryPolicy) -> None:
        self.connection = connection
        self.policy = policy
        self._http: AsyncHttp | None = None
        self._is_closed = False
        self._opening = threading.Lock()
        """Held while HTTP is opened: concurrent first calls of threads share it."""

    async def aclose(self) -> None:
        self._is_closed = True
        if self._http is not None:
            await self._http.aclose()

    async def request(
        self, call: Call[T], within_seconds: float | None = None, attempts: RetryState | None = None
    ) -> T:
        """Returns the result of the call; retries within `within_seconds` and the policy's deadline."""
        policy = self.policy if within_seconds is None else self.policy.within(within_seconds)
        attempts = attempts or RetryState(policy)
        while True:
            try:
                return call.read(await self._send(call))
            except TideqError as error:
                if (response := attempts.result_of_refusal(call, error)) is not None:
                    return response
                delay = attempts.delay(error, is_repeatable=call.is_repeatable)
                if call.is_repeatable and isinstance(error.__cause__, Stale):
                    continue  # at once, over another connection
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    async def exchange(self, call: Call[Any]) -> Response:
        """Returns any response, also a refusal. No retry."""
        http = self._http or self._open()
        try:
            return await http.request(call)
        except ExchangeFailed as error:
            raise self.connection.unreachable(error) from error

    async def open_stream(self, request: HttpRequest) -> "AsyncResponseStream":
        """Returns a response that is still being received; the caller must close it. No retry."""
        http = self._http or self._open()
        try:
            response = await http.open_stream(request)
            if response.is_success:
                return response
            refused = await response.whole()
        except ExchangeFailed as error:
            raise self.connection.unreachable(error) from error
        raise refusal(refused.status, refused.body, refused.headers.get("Retry-After"))

    async def _send(self, call: Call[T]) -> bytes:
        response = await self.exchange(call)
        if not response.is_success:
            raise refusal(response.status, response.body, response.headers.get("Retry-After"))
        return response.body

    def _open(self) -> "AsyncHttp":
        """Imports the HTTP library: with the first call, because the import takes longer than importing this client."""
        from tideq.client.http.over_aiohttp import AsyncHttp

        with self._opening:
            if self._is_closed:
                raise RuntimeError("the client is closed")
            if self._http is None:
                config = self.connection
                self._http = AsyncHttp(config.endpoint, config.timeouts, config.verify, config.max_connections)
            return self._http
