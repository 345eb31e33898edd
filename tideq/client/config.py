"""URL, key and timeouts of a client: from arguments, else the environment, else the address of `tideq up`."""

import importlib.metadata
import os
import ssl
from collections.abc import Mapping

import msgspec

from tideq.client.errors import BadAnswer, CannotConnect, NoAnswer, TideqError, UntrustedServer
from tideq.client.http.endpoint import Endpoint, endpoint_of
from tideq.client.http.exchange import ExchangeFailed, Lost, Timeouts, Unsent

DEFAULT_URL = "http://127.0.0.1:8080"


class ClientConfig(msgspec.Struct, frozen=True):
    url: str
    headers: dict[str, str]
    timeouts: Timeouts
    max_connections: int
    verify: ssl.SSLContext | bool

    @property
    def endpoint(self) -> Endpoint:
        return endpoint_of(self.url, self.headers)

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
    return ClientConfig(
        url=checked_url(url or environ.get("TIDEQ_URL") or DEFAULT_URL),
        headers={**headers, "Authorization": f"Bearer {key}"} if key else headers,
        timeouts=timeouts or Timeouts(),
        max_connections=max_connections,
        verify=verify,
    )


def checked_url(url: str) -> str:
    try:
        endpoint_of(url, {})
    except ValueError as error:
        raise ValueError(f"{url!r} is not a valid service URL: use the form http://127.0.0.1:8080") from error
    return url.rstrip("/")


def checked_key(key: str) -> str:
    """Strips the line end that a file or the environment may add."""
    if not key.strip().isascii() or not key.strip().isprintable():
        raise ValueError("the API key contains characters outside printable ASCII: check TIDEQ_API_KEY or api_key")
    return key.strip()


def _is_certificate_error(error: BaseException) -> bool:
    """Whether an SSL certificate error is among the causes."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return isinstance(cause, ssl.SSLCertVerificationError)
