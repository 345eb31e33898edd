"""One pool of connections, and the patience to try again."""

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from tideq.client._async.lean import AsyncLean
from tideq.client.calls.base import Call, Params
from tideq.client.config import ClientConfig
from tideq.client.error_mapping import refusal
from tideq.client.errors import TideqError
from tideq.client.http.answers import Response
from tideq.client.http.failures import ExchangeFailed, Stale
from tideq.client.http.pools import AsyncPool
from tideq.client.retrying import RetryPolicy, RetryState

if TYPE_CHECKING:
    from tideq.client._async.through_httpx import AsyncLongAnswer, AsyncThroughHttpx

T = TypeVar("T")


class AsyncTransport:
    def __init__(self, connection: ClientConfig, policy: RetryPolicy) -> None:
        self.connection = connection
        self.policy = policy
        self._way: AsyncLean | AsyncThroughHttpx | None = None
        self._through_httpx: AsyncThroughHttpx | None = None
        self._is_closed = False
        self._choosing = threading.RLock()
        """Threads that make their first calls at the same time share what one of them chose."""

    async def aclose(self) -> None:
        self._is_closed = True
        if self._way is not None:
            await self._way.aclose()
        if self._through_httpx is not None and self._through_httpx is not self._way:
            await self._through_httpx.aclose()

    async def ask(self, call: Call[T], within_seconds: float | None = None, attempts: RetryState | None = None) -> T:
        """The call's answer; it is tried for no longer than this, nor than the policy's deadline."""
        policy = self.policy if within_seconds is None else self.policy.within(within_seconds)
        attempts = attempts or RetryState(policy)
        while True:
            try:
                return call.read(await self._send(call))
            except TideqError as error:
                if (answer := attempts.settled(call, error)) is not None:
                    return answer
                delay = attempts.delay(error, is_repeatable=call.is_repeatable)
                if call.is_repeatable and isinstance(error.__cause__, Stale):
                    continue  # on another connection: each is kept no longer than until it fails
                if delay is None:
                    raise
            await anyio.sleep(delay)

    async def exchange(self, call: Call[Any]) -> Response:
        """Whatever is answered. Tried once."""
        way = self._way or self._choose()
        try:
            return await way.send(call, self.connection.timeouts.for_call(call.waits_seconds))
        except ExchangeFailed as error:
            raise self.connection.unreachable(error) from error

    async def listen(
        self, path: str, params: Params, headers: dict[str, str], silence_seconds: float
    ) -> "AsyncLongAnswer":
        """An answer that has begun and goes on; to be closed by whoever asked. Tried once."""
        timeouts = self.connection.timeouts.for_call(silence_seconds)
        try:
            answer = await self._by_httpx().listen(path, params, headers, timeouts)
            if answer.is_success:
                return answer
            refused = await answer.whole()
        except ExchangeFailed as error:
            raise self.connection.unreachable(error) from error
        raise refusal(refused.status, refused.body, refused.header("Retry-After"))

    async def _send(self, call: Call[T]) -> bytes:
        answer = await self.exchange(call)
        if not answer.is_success:
            raise refusal(answer.status, answer.body, answer.header("Retry-After"))
        return answer.body

    def _choose(self) -> "AsyncLean | AsyncThroughHttpx":
        """With the first call: only then is there a loop."""
        with self._choosing:
            self._refuse_if_closed()
            if self._way is None:
                is_lean = AsyncPool.fits_here() and not self.connection.has_proxy
                self._way = AsyncLean(self.connection) if is_lean else self._by_httpx()
            return self._way

    def _by_httpx(self) -> "AsyncThroughHttpx":
        """Imported where it is needed: that takes longer than ten calls."""
        from tideq.client._async.through_httpx import AsyncThroughHttpx

        with self._choosing:
            self._refuse_if_closed()
            self._through_httpx = self._through_httpx or AsyncThroughHttpx(self.connection)
            return self._through_httpx

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise RuntimeError("the client is closed")
