"""The client that decorators and chains use: one for each process, created on first use."""

import contextlib
import threading
from collections.abc import Generator

from tideq.client import Client
from tideq.client.options import strict_call

_lock = threading.Lock()
_client: Client | None = None


@strict_call
def init(url: str | None = None, api_key: str | None = None) -> Client:
    """Sets the service, instead of TIDEQ_URL and TIDEQ_API_KEY; returns the client that all calls share."""
    global _client
    with _lock:
        if _client is not None:
            _client.close()
        _client = Client(url, api_key)
        return _client


def default_client() -> Client:
    global _client
    with _lock:
        if _client is None:
            _client = Client()
        return _client


@contextlib.contextmanager
def use(client: Client) -> Generator[None]:
    """Replaces the client inside the block."""
    global _client
    before, _client = _client, client
    try:
        yield
    finally:
        _client = before
