"""Handing tasks over: what an answer held that could not be delivered goes back at once.

The last byte is kept back until the rest is written and the caller was still not seen to leave. Without it a caller has
no answer, so its tasks may be given to others; with it the caller keeps them, however soon it hangs up.

Not noticed is what the kernel took and then lost: an answer that dies in the network, or in a proxy that had read it.
Such tasks come back with the repeated `poll_id`, or when their time is over. An answer that only repeats an
earlier one is not taken back, since the earlier one may have arrived.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from litestar.types import Receive, Send

from tideq.api.edge.disconnect import disconnected
from tideq.api.edge.responses import JsonResponse, body_message, response_head
from tideq.queue_core.errors import QueueError

LOOKS = 4
"""Turns of the loop from a write to a dead connection until the server tells of it: the write, the error that comes
back, the loss of the connection, the message about it."""

log = structlog.get_logger(__name__)


class ClaimResponse(JsonResponse):
    def __init__(self, content: bytes, take_back: Callable[[], Awaitable[object]]) -> None:
        super().__init__(content)
        self._take_back = take_back

    async def send(self, receive: Receive, send: Send) -> None:
        leaving = asyncio.ensure_future(disconnected(receive))
        is_delivered = False
        try:
            is_delivered = await self._deliver(send, leaving)
        except OSError as error:
            log.info("caller gone", error=str(error))
        finally:
            leaving.cancel()
            if not is_delivered:
                await asyncio.shield(self._recover())

    async def _deliver(self, send: Send, leaving: asyncio.Future[None]) -> bool:
        if await _is_seen(leaving, looks=1):
            return False
        await send(response_head(self))
        await send(body_message(self.content[:-1], more=True))
        # Returns when the server has room again, so that what was written is out of its hands.
        await send(body_message(b"", more=True))
        if await _is_seen(leaving, looks=LOOKS):
            return False
        await send(body_message(self.content[-1:], more=False))
        return True

    async def _recover(self) -> None:
        try:
            await self._take_back()
        except QueueError as error:
            log.warning("undelivered tasks come back when their time is over", error=str(error))


async def _is_seen(leaving: asyncio.Future[None], looks: int) -> bool:
    for _ in range(looks):
        if leaving.done():
            break
        await asyncio.sleep(0)
    return leaving.done()
