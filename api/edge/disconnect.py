"""Noticing that a caller has gone: Litestar does not cancel a handler for that, so a route that waits looks itself."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar import Request
from litestar.types import Receive

from tideq.api.edge.auth import Gate
from tideq.api.edge.problems import Unauthorized
from tideq.queue_core.background import end

T = TypeVar("T")


class CallerGone(Exception):
    """Nobody is there to hear the answer."""


async def while_present(request: Request[Any, Any, Any], gate: Gate, work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, unless the caller goes first or is shut out: then the work is cancelled and may clean up."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone(request.receive))
    try:
        with gate.watching(request.user) as shut_out:
            await asyncio.wait((working, leaving, shut_out), return_when=asyncio.FIRST_COMPLETED)
            if shut_out.done():
                raise Unauthorized("the key was revoked or changed while this waited")
        if not working.done():
            raise CallerGone
        return await working
    finally:
        # Not waited for: nothing of ours is under way in it, and whoever was given a task waits for the answer.
        leaving.cancel()
        if not working.done():
            await end(working)


async def gone(receive: Receive) -> None:
    """Once the body has been read, the next message is the end of the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
