"""The requests a worker makes again and again, over the client's own connections.

A request through httpx costs 720 to 870 µs of CPU, through aiohttp 145 to 180, through this 25 to 60 (loopback, 700
bytes each way, with and without uvloop): with ten tasks a request the client was most of what a worker cost.
"""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tideq.client.http.address import address_of
from tideq.client.http.answers import Response
from tideq.client.http.asynchronous import AsyncPool
from tideq.client.http.failures import Stale
from tideq.client.http.proxies import has_proxy
from tideq.client.http.timeouts import Timeouts
from tideq.client.http.trust import trust

if TYPE_CHECKING:
    from tideq.workers.runtime.proxied import Proxied

CONNECT_SECONDS = 5.0
MAX_IDLE = 8
MANY = 1_000_000
"""Whoever asks counts what is under way."""


class Http:
    """One server, as many connections as there are requests at a time, kept open between them.

    A kept connection that is gone before a byte of the answer came is replaced and the request sent again: polls have
    an id, reports a lease, and whoever registers or leaves does so again anyway when it hears nothing.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._address = address_of(url, headers)
        self._pool = AsyncPool(
            self._address, lambda: trust(verify=True), MANY, max_idle=MAX_IDLE, idle_seconds=float("inf")
        )

    async def request(self, method: str, path: str, body: bytes, seconds: float) -> Response:
        """Raises OSError or TimeoutError where no answer can be had."""
        message = self._address.request(method, path, body=body)
        timeouts = Timeouts(connect=CONNECT_SECONDS, read=seconds, write=seconds)
        async with asyncio.timeout(CONNECT_SECONDS + seconds):
            while True:
                with contextlib.suppress(Stale):
                    return await self._pool.ask(message, timeouts)

    async def aclose(self) -> None:
        self._pool.close()


def http_for(url: str, headers: Mapping[str, str]) -> "Http | Proxied":
    if not has_proxy(url, os.environ):
        return Http(url, headers)
    from tideq.workers.runtime.proxied import Proxied

    return Proxied(url, headers, CONNECT_SECONDS)
