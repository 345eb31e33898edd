"""Sends the worker's requests over the client's own connections: 25 to 60 µs of CPU each, httpx 720 to 870."""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tideq.client.http.address import address_of
from tideq.client.http.answers import Response
from tideq.client.http.asynchronous import AsyncPool
from tideq.client.http.exchange_failures import Stale
from tideq.client.http.proxies import has_proxy
from tideq.client.http.timeouts import Timeouts
from tideq.client.http.trust import trust

if TYPE_CHECKING:
    from tideq.workers.runtime.proxied import Proxied

CONNECT_SECONDS = 5.0
MAX_IDLE = 8
MANY = 1_000_000
"""No limit here: the callers limit their requests."""


class Http:
    """One server; one connection for each concurrent request, kept open between requests.

    A kept connection that breaks before a byte of the response is replaced and the request sent again. That is safe:
    polls have an id, reports a lease, and registrations are repeated anyway when no reply arrives.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._address = address_of(url, headers)
        self._pool = AsyncPool(
            self._address, lambda: trust(verify=True), MANY, max_idle=MAX_IDLE, idle_seconds=float("inf")
        )

    async def request(self, method: str, path: str, body: bytes, seconds: float) -> Response:
        """Raises OSError or TimeoutError where there is no response."""
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
