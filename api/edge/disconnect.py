"""Noticing that a caller has gone: Litestar does not cancel a handler for that, so a route that waits looks itself."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar import Request
from litestar.types import Receive

from tideq.api.edge.auth import Authenticator
from tideq.api.edge.problems import Unauthorized
from tideq.queue_core.background import cancel_and_wait

T = TypeVar("T")


class ClientDisconnected(Exception):
    """Nobody is there to hear the answer."""


async def cancel_on_disconnect(request: Request[Any, Any, Any], gate: Authenticator, work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, unless the caller goes first or is shut out: then the work is cancelled and may clean up."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(disconnected(request.receive))
    try:
        with gate.watching(request.user) as shut_out:
            await asyncio.wait((working, leaving, shut_out), return_when=asyncio.FIRST_COMPLETED)
            if shut_out.done():
                raise Unauthorized("the key was revoked or changed while this waited")
        if not working.done():
            raise ClientDisconnected
        return await working
    finally:
        # Not waited for: nothing of ours is under way in it, and whoever was given a task waits for the answer.
        leaving.cancel()
        if not working.done():
            await cancel_and_wait(working)


async def disconnected(receive: Receive) -> None:
    """Once the body has been read, the next message is the end of the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
