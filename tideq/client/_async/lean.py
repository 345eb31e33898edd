"""Over connections of our own: a tenth of what httpx costs."""

from typing import Any

from tideq.client.calls.base import Call
from tideq.client.config import ClientConfig
from tideq.client.http.address import address_of
from tideq.client.http.answers import Response
from tideq.client.http.pools import AsyncPool
from tideq.client.http.timeouts import Timeouts
from tideq.client.http.trust import trust


class AsyncLean:
    def __init__(self, connection: ClientConfig) -> None:
        self._address = address_of(connection.url, {"accept-encoding": "gzip", **connection.headers})
        self._pool = AsyncPool(self._address, lambda: trust(connection.verify), connection.max_connections)

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def send(self, call: Call[Any], timeouts: Timeouts) -> Response:
        """Raises a Failure."""
        message = self._address.request(call.method, call.path, call.params, call.headers, call.body)
        return await self._pool.ask(message, timeouts, is_repeatable=call.is_repeatable)
