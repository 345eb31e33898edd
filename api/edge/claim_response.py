"""The response to a claim: tasks of a response that could not be delivered go back to the queue at once.

The last byte is held until the rest is written and the client is still connected. Without that byte the client has no
response, so its tasks may go to others; with it the client keeps them, even if it disconnects right after.

Limit: once the kernel has accepted the bytes we cannot see that the network or a proxy lost them. Such tasks return by
a repeated `poll_id` or by timeout. The claim of a repeated response is not undone: the earlier response may have
arrived.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from litestar.types import Receive, Send

from tideq.api.edge.disconnect import disconnected
from tideq.api.edge.responses import JsonResponse, body_message, response_head
from tideq.queue_core.errors import QueueError

TURNS = 4
"""Turns of the event loop from a write to a dead connection until `receive` returns a disconnect: the write, its error,
the loss of the connection, the message."""

log = structlog.get_logger(__name__)


class ClaimResponse(JsonResponse):
    def __init__(self, content: bytes, undo_claim: Callable[[], Awaitable[object]]) -> None:
        super().__init__(content)
        self._undo_claim = undo_claim

    async def send(self, receive: Receive, send: Send) -> None:
        leaving = asyncio.ensure_future(disconnected(receive))
        is_delivered = False
        try:
            is_delivered = await self._deliver(send, leaving)
        except OSError as error:
            log.info("client disconnected", error=str(error))
        finally:
            leaving.cancel()
            if not is_delivered:
                await asyncio.shield(self._recover())

    async def _deliver(self, send: Send, leaving: asyncio.Future[None]) -> bool:
        if await _has_disconnected(leaving, turns=1):
            return False
        await send(response_head(self))
        await send(body_message(self.content[:-1], more=True))
        # Returns when the server's write buffer has room again, so the kernel has what was written.
        await send(body_message(b"", more=True))
        if await _has_disconnected(leaving, turns=TURNS):
            return False
        await send(body_message(self.content[-1:], more=False))
        return True

    async def _recover(self) -> None:
        try:
            await self._undo_claim()
        except QueueError as error:
            log.warning("undelivered claim not undone, its tasks return by timeout", error=str(error))


async def _has_disconnected(leaving: asyncio.Future[None], turns: int) -> bool:
    for _ in range(turns):
        if leaving.done():
            break
        await asyncio.sleep(0)
    return leaving.done()
