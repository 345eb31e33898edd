"""URL, key and timeouts of a client: from arguments, else the environment, else the address of `tideq up`."""

import importlib.metadata
import os
import ssl
from collections.abc import Mapping

import msgspec

from tideq.client.errors import BadAnswer, CannotConnect, NoAnswer, TideqError, UntrustedServer
from tideq.client.http.address import address_of
from tideq.client.http.exchange_failures import ExchangeFailed, Lost, Unsent
from tideq.client.http.proxies import has_proxy
from tideq.client.http.timeouts import Timeouts

DEFAULT_URL = "http://127.0.0.1:8080"


class ClientConfig(msgspec.Struct, frozen=True):
    url: str
    headers: dict[str, str]
    timeouts: Timeouts
    max_connections: int
    verify: ssl.SSLContext | bool
    has_proxy: bool
    """Whether the environment sets a proxy for this URL."""

    def unreachable(self, error: ExchangeFailed) -> TideqError:
        """Returns the client's error for a failed exchange."""
        why = str(error) or type(error).__name__
        if isinstance(error, Unsent):
            kind = UntrustedServer if _is_certificate_error(error) else CannotConnect
            return kind(f"cannot connect to {self.url}: {why}. Check the URL and that the TideQ service runs")
        if isinstance(error, Lost):
            return NoAnswer(f"no response from {self.url}: {why}")
        return BadAnswer(f"the response of {self.url} is not valid HTTP from a TideQ service: {why}")


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
        verify=_unused_tls_context() if verify is True and address.startswith("http://") and not proxied else verify,
        has_proxy=proxied,
    )


def checked_url(url: str) -> str:
    if not _is_http(url):
        raise ValueError(f"{url!r} is not a valid service URL: use the form http://127.0.0.1:8080")
    return url.rstrip("/")


def checked_key(key: str) -> str:
    """Strips the line end that a file or the environment may add."""
    if not key.strip().isascii() or not key.strip().isprintable():
        raise ValueError("the API key contains characters outside printable ASCII: check TIDEQ_API_KEY or api_key")
    return key.strip()


def _is_http(url: str) -> bool:
    try:
        address_of(url, {})
    except ValueError:
        return False
    return True


def _unused_tls_context() -> ssl.SSLContext:
    """A placeholder for plain HTTP: loading the certificate authorities would take longer than ten calls."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _is_certificate_error(error: BaseException) -> bool:
    """Whether an SSL certificate error is among the causes."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return isinstance(cause, ssl.SSLCertVerificationError)
