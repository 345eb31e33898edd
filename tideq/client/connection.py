"""Where the service is and how to talk to it: arguments, then the environment, then what `tideq up` listens on."""

import importlib.metadata
import os
import ssl
import urllib.request
from collections.abc import Mapping

import httpx
import msgspec

from tideq.client.errors import BadAnswer, CannotConnect, NoAnswer, TideqError, UntrustedServer

DEFAULT_URL = "http://127.0.0.1:8080"
OUR_FAULT = (httpx.LocalProtocolError, httpx.UnsupportedProtocol)
"""Asking again in the same way would not help."""
NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. `read` is for one silence in an answer; calls that wait on purpose add their own time to it."""

    connect: float = 5.0
    read: float = 20.0
    write: float = 20.0
    pool: float = 60.0

    def for_call(self, waits_seconds: float) -> httpx.Timeout:
        return httpx.Timeout(connect=self.connect, read=self.read + waits_seconds, write=self.write, pool=self.pool)


class Connection(msgspec.Struct, frozen=True):
    """Everything a client must know before its first call."""

    url: str
    headers: dict[str, str]
    timeouts: Timeouts
    limits: httpx.Limits
    verify: ssl.SSLContext | bool

    def unreachable(self, error: httpx.RequestError) -> TideqError:
        """What a failed exchange means to a caller."""
        why = str(error) or type(error).__name__
        if isinstance(error, NOTHING_SENT):
            kind = UntrustedServer if _is_about_trust(error) else CannotConnect
            return kind(f"no TideQ service can be reached at {self.url}: {why}. Is the URL right, and does it run?")
        if isinstance(error, httpx.TransportError) and not isinstance(error, OUR_FAULT):
            return NoAnswer(f"{self.url} did not answer: {why}")
        return BadAnswer(f"{self.url} and this client do not understand each other: {why}")


def connection_from(
    url: str | None,
    api_key: str | None,
    timeouts: Timeouts | None,
    max_connections: int,
    verify: ssl.SSLContext | bool,
    environ: Mapping[str, str] = os.environ,
) -> Connection:
    key = checked_key(environ.get("TIDEQ_API_KEY", "") if api_key is None else api_key)
    headers = {"User-Agent": f"tideq-python/{importlib.metadata.version('tideq')}"}
    address = checked_url(url or environ.get("TIDEQ_URL") or DEFAULT_URL)
    return Connection(
        url=address,
        headers={**headers, "Authorization": f"Bearer {key}"} if key else headers,
        timeouts=timeouts or Timeouts(),
        limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=20),
        verify=_cheap_trust() if verify is True and _is_plain(address) else verify,
    )


def checked_url(url: str) -> str:
    if not _is_http(url):
        raise ValueError(f"{url!r} is no URL of a service: it should read like http://127.0.0.1:8080")
    return url.rstrip("/")


def checked_key(key: str) -> str:
    """As files and environments give it, with a line's end perhaps."""
    if not key.strip().isascii() or not key.strip().isprintable():
        raise ValueError("the API key holds characters that no key has")
    return key.strip()


def _is_http(url: str) -> bool:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parts.scheme in ("http", "https") and bool(parts.host) and " " not in url


def _is_plain(url: str) -> bool:
    return url.startswith("http://") and not urllib.request.getproxies()


def _cheap_trust() -> ssl.SSLContext:
    """Trusts nobody, and is not asked. Reading the list of authorities takes longer than ten calls."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _is_about_trust(error: BaseException) -> bool:
    """httpx tells of the certificate only in the error's ancestry."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return isinstance(cause, ssl.SSLCertVerificationError)
