"""Where the service is and how to talk to it: arguments, then the environment, then what `tideq up` listens on."""

import importlib.metadata
import os
import ssl
from collections.abc import Mapping

import msgspec

from tideq.client.errors import BadAnswer, CannotConnect, NoAnswer, TideqError, UntrustedServer
from tideq.client.http.address import address_of
from tideq.client.http.failures import ExchangeFailed, Lost, Unsent
from tideq.client.http.proxies import has_proxy
from tideq.client.http.timeouts import Timeouts

DEFAULT_URL = "http://127.0.0.1:8080"


class ClientConfig(msgspec.Struct, frozen=True):
    """Everything a client must know before its first call."""

    url: str
    headers: dict[str, str]
    timeouts: Timeouts
    max_connections: int
    verify: ssl.SSLContext | bool
    has_proxy: bool
    """Whether the environment names one for this URL."""

    def unreachable(self, error: ExchangeFailed) -> TideqError:
        """What a failed exchange means to a caller."""
        why = str(error) or type(error).__name__
        if isinstance(error, Unsent):
            kind = UntrustedServer if _is_about_trust(error) else CannotConnect
            return kind(f"no TideQ service can be reached at {self.url}: {why}. Is the URL right, and does it run?")
        if isinstance(error, Lost):
            return NoAnswer(f"{self.url} did not answer: {why}")
        return BadAnswer(f"{self.url} and this client do not understand each other: {why}")


def client_config(
    url: str | None,
    api_key: str | None,
    timeouts: Timeouts | None,
    max_connections: int,
    verify: ssl.SSLContext | bool,
    environ: Mapping[str, str] = os.environ,
) -> ClientConfig:
    key = checked_key(environ.get("TIDEQ_API_KEY", "") if api_key is None else api_key)
    headers = {"User-Agent": f"tideq-python/{importlib.metadata.version('tideq')}"}
    address = checked_url(url or environ.get("TIDEQ_URL") or DEFAULT_URL)
    proxied = has_proxy(address, environ)
    return ClientConfig(
        url=address,
        headers={**headers, "Authorization": f"Bearer {key}"} if key else headers,
        timeouts=timeouts or Timeouts(),
        max_connections=max_connections,
        verify=_cheap_trust() if verify is True and address.startswith("http://") and not proxied else verify,
        has_proxy=proxied,
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
        address_of(url, {})
    except ValueError:
        return False
    return True


def _cheap_trust() -> ssl.SSLContext:
    """Trusts nobody, and is not asked. Reading the list of authorities takes longer than ten calls."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _is_about_trust(error: BaseException) -> bool:
    """Of the certificate only the error's ancestry tells."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return isinstance(cause, ssl.SSLCertVerificationError)
