"""One pool of connections, and the patience to try again."""

from typing import TypeVar

import anyio
import httpx

from tideq.client.calls.base import Call, Params
from tideq.client.connection import Connection
from tideq.client.errors import TideqError
from tideq.client.refusals import refusal
from tideq.client.retrying import Attempts, RetryPolicy

T = TypeVar("T")


class AsyncTransport:
    def __init__(self, connection: Connection, policy: RetryPolicy) -> None:
        self.connection = connection
        self.policy = policy
        self._http = httpx.AsyncClient(
            headers=connection.headers,
            limits=connection.limits,
            verify=connection.verify,
            timeout=connection.timeouts.for_call(0),
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def ask(self, call: Call[T], within_seconds: float | None = None) -> T:
        """The call's answer; it is tried for no longer than this, nor than the policy's deadline."""
        policy = self.policy if within_seconds is None else self.policy.within(within_seconds)
        attempts = Attempts(policy)
        while True:
            try:
                return call.read(await self._send(call))
            except TideqError as error:
                if (answer := attempts.settled(call, error)) is not None:
                    return answer
                delay = attempts.delay(error, is_repeatable=call.is_repeatable)
                if delay is None:
                    raise
            await anyio.sleep(delay)

    async def listen(
        self, path: str, params: Params, headers: dict[str, str], silence_seconds: float
    ) -> httpx.Response:
        """An answer that has begun and goes on; to be closed by whoever asked. Tried once."""
        timeout = self.connection.timeouts.for_call(silence_seconds)
        request = self._http.build_request(
            "GET", self.connection.url + path, params=params, headers=headers, timeout=timeout
        )
        try:
            response = await self._http.send(request, stream=True)
            body = b"" if response.is_success else await response.aread()
        except httpx.RequestError as error:
            raise self.connection.unreachable(error) from error
        if not response.is_success:
            raise refusal(response.status_code, body, response.headers.get("Retry-After"))
        return response

    async def _send(self, call: Call[T]) -> bytes:
        try:
            response = await self._http.request(
                call.method,
                self.connection.url + call.path,
                params=call.params,
                content=call.body,
                headers=call.headers,
                timeout=self.connection.timeouts.for_call(call.waits_seconds),
            )
        except httpx.RequestError as error:
            raise self.connection.unreachable(error) from error
        if not response.is_success:
            raise refusal(response.status_code, response.content, response.headers.get("Retry-After"))
        return response.content
