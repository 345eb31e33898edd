"""One request and its response: how long each part may take, what came back, and why nothing did."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tideq.client.options import StrictStruct

Params = tuple[tuple[str, str], ...]

MAX_BODY_BYTES = 1 << 30
"""A page of 1 000 tasks with the largest parameters there may be is smaller."""
IDLE_SECONDS = 5.0
"""Servers and load balancers close idle connections; one that was idle for longer is not used again."""
PIECE_BYTES = 65_536


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, metaclass=StrictStruct):
    """Seconds. `read` is for one silence in a response; calls that wait on purpose add their own time to it."""

    connect: float = 5.0
    read: float = 20.0
    write: float = 20.0
    pool: float = 60.0


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a service."""

    method: str
    path: str
    params: Params = ()
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    waits_seconds: float = 0.0
    """Added to the read timeout."""
    is_repeatable: bool = True
    """Whether a repetition has no further effect and the same response."""


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """Names in any case."""
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class ExchangeFailed(Exception):
    """There is no response."""


class Unsent(ExchangeFailed):
    """No byte of the request was sent: the server cannot be reached or is not trusted, or no connection was free."""


class Lost(ExchangeFailed):
    """The request was sent, at least in part, and no whole response came: it may have been carried out."""


class Stale(Lost):
    """A kept connection ended before a byte of the response, most likely before the request."""


class Misunderstood(ExchangeFailed):
    """The same request would fail again."""


class BodyPieces:
    """Collects a body and refuses one without end."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > MAX_BODY_BYTES:
            raise Misunderstood("the response is larger than any of a TideQ service")
        self._pieces.append(piece)

    def joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
