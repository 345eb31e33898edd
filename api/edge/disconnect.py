"""Detects that the client disconnected: no ASGI server cancels a handler for that, so a waiting route must look.

A long poll must also undo its claim, which cancelling cannot do: `long_poll.py`.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar import Request
from litestar.types import Receive

from tideq.api.edge.auth import Authenticator
from tideq.api.edge.problems import ClientDisconnected, Unauthorized
from tideq.queue_core.background import cancel_and_wait

T = TypeVar("T")
KEY_REVOKED = "the key was revoked or changed while the request waited; use a valid key"


async def cancel_on_disconnect(
    request: Request[Any, Any, Any], authenticator: Authenticator, work: Coroutine[Any, Any, T]
) -> T:
    """The result of `work`. If the client disconnects or its key is revoked first, `work` is cancelled and waited for.

    Raises `ClientDisconnected` or `Unauthorized`.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(request.receive))
    try:
        with authenticator.watch_key(request.user) as revoked:
            await asyncio.wait((working, leaving, revoked), return_when=asyncio.FIRST_COMPLETED)
            if revoked.done():
                raise Unauthorized(KEY_REVOKED)
        if not working.done():
            raise ClientDisconnected
        return await working
    finally:
        # Not awaited: it only reads messages, and awaiting it would delay the response.
        leaving.cancel()
        if not working.done():
            await cancel_and_wait(working)


async def disconnected(receive: Receive) -> None:
    """Returns when the connection ends. The body must have been read: the next message is then the disconnect."""
    while (await receive())["type"] != "http.disconnect":
        pass
