"""Sends the worker's requests through a proxy: slower, with httpx, which supports proxies."""

import ssl
from collections.abc import Mapping

import httpx

from tideq.client.http.answers import Response
from tideq.client.http.trust import trust


class Proxied:
    """One server, through the proxy that the environment names for it. Same interface as `Http`."""

    def __init__(self, url: str, headers: Mapping[str, str], connect_seconds: float) -> None:
        self._connect_seconds = connect_seconds
        self._url = url.rstrip("/")
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.AsyncClient(headers=headers, limits=limits, verify=_verify(url))

    async def request(self, method: str, path: str, body: bytes, seconds: float) -> Response:
        """Raises OSError where there is no response."""
        timeout = httpx.Timeout(seconds, connect=self._connect_seconds)
        try:
            response = await self._client.request(method, self._url + path, content=body, timeout=timeout)
        except httpx.RequestError as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
        return Response(response.status_code, response.headers.raw, response.content)

    async def aclose(self) -> None:
        await self._client.aclose()


def post(url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> tuple[int, bytes]:
    """Blocks; no retry."""
    response = httpx.post(url, content=body, headers=headers, timeout=seconds, verify=_verify(url))
    return response.status_code, response.content


def _verify(url: str) -> ssl.SSLContext | bool:
    return trust(verify=True) if url.startswith("https://") else False
