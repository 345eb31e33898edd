"""One pool of connections, and the retries of calls."""

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from tideq.client._async.lean import AsyncLean
from tideq.client.calls.base import Call, Params
from tideq.client.config import ClientConfig
from tideq.client.error_mapping import refusal
from tideq.client.errors import TideqError
from tideq.client.http.answers import Response
from tideq.client.http.exchange_failures import ExchangeFailed, Stale
from tideq.client.http.pools import AsyncPool
from tideq.client.retrying import RetryPolicy, RetryState

if TYPE_CHECKING:
    from tideq.client._async.through_httpx import AsyncLongAnswer, AsyncThroughHttpx

T = TypeVar("T")


class AsyncTransport:
    def __init__(self, connection: ClientConfig, policy: RetryPolicy) -> None:
        self.connection = connection
        self.policy = policy
        self._sender: AsyncLean | AsyncThroughHttpx | None = None
        self._through_httpx: AsyncThroughHttpx | None = None
        self._is_closed = False
        self._choosing = threading.RLock()
        """Held while the HTTP client is chosen: concurrent first calls of threads share one."""

    async def aclose(self) -> None:
        self._is_closed = True
        if self._sender is not None:
            await self._sender.aclose()
        if self._through_httpx is not None and self._through_httpx is not self._sender:
            await self._through_httpx.aclose()

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
                    continue  # on another connection: a failed one is dropped from the pool
                if delay is None:
                    raise
            await anyio.sleep(delay)

    async def exchange(self, call: Call[Any]) -> Response:
        """Returns any response, also a refusal. No retry."""
        sender = self._sender or self._choose()
        try:
            return await sender.send(call, self.connection.timeouts.for_call(call.waits_seconds))
        except ExchangeFailed as error:
            raise self.connection.unreachable(error) from error

    async def open_stream(
        self, path: str, params: Params, headers: dict[str, str], silence_seconds: float
    ) -> "AsyncLongAnswer":
        """Returns a response that is still being received; the caller must close it. No retry."""
        timeouts = self.connection.timeouts.for_call(silence_seconds)
        try:
            response = await self._by_httpx().listen(path, params, headers, timeouts)
            if response.is_success:
                return response
            refused = await response.whole()
        except ExchangeFailed as error:
            raise self.connection.unreachable(error) from error
        raise refusal(refused.status, refused.body, refused.header("Retry-After"))

    async def _send(self, call: Call[T]) -> bytes:
        response = await self.exchange(call)
        if not response.is_success:
            raise refusal(response.status, response.body, response.header("Retry-After"))
        return response.body

    def _choose(self) -> "AsyncLean | AsyncThroughHttpx":
        """Called with the first call: before, there is no event loop."""
        with self._choosing:
            self._refuse_if_closed()
            if self._sender is None:
                is_lean = AsyncPool.fits_here() and not self.connection.has_proxy
                self._sender = AsyncLean(self.connection) if is_lean else self._by_httpx()
            return self._sender

    def _by_httpx(self) -> "AsyncThroughHttpx":
        """Imports httpx only where needed: the import takes longer than ten calls."""
        from tideq.client._async.through_httpx import AsyncThroughHttpx

        with self._choosing:
            self._refuse_if_closed()
            self._through_httpx = self._through_httpx or AsyncThroughHttpx(self.connection)
            return self._through_httpx

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise RuntimeError("the client is closed")
