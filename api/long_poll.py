"""A worker's poll from its first claim to the last byte of its response.

While the poll waits, a client that disconnects or loses its key ends it: nothing more is claimed. A claim that is under
way then is awaited and undone, and so is one whose response cannot be delivered: its tasks go back at once.

The last byte is held until the rest is written and the client is still connected. Without that byte the client has no
response, so its tasks may go to others; with it the client keeps them, even if it disconnects right after.

Limit: once the server has accepted the bytes we cannot see that the network or a proxy lost them. Such tasks return by
a repeated `poll_id` or by timeout. The claim of a repeated response is not undone: the earlier response may have
arrived.
"""

import asyncio
import contextlib
import time
from typing import Any

import structlog
from litestar import Request, Response
from litestar.types import Send

from tideq.api.edge.auth import Caller
from tideq.api.edge.disconnect import KEY_REVOKED, disconnected
from tideq.api.edge.problems import ClientDisconnected, Unauthorized
from tideq.api.edge.responses import JsonResponse, body_message, encode, response_head
from tideq.api.request_spans import trace_received
from tideq.api.schemas.attempts import SyncIn
from tideq.api.schemas.base import ResponseSchema
from tideq.api.schemas.workers import PollIn
from tideq.api.service import Service
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.errors import QueueError
from tideq.queue_core.polls.waiting_polls import WaitingPoll
from tideq.queue_core.task import Claim

TURNS = 4
"""Turns of the event loop from a write to a dead connection until `receive` returns a disconnect: the write, its error,
the loss of the connection, the message."""

log = structlog.get_logger(__name__)


class LongPoll:
    """`capabilities` replace those of the worker's registration; None keeps them."""

    def __init__(
        self,
        request: Request[Caller, Any, Any],
        service: Service,
        worker_id: str,
        body: PollIn | SyncIn,
        capabilities: list[str] | None = None,
    ) -> None:
        self._request = request
        self._service = service
        self._worker_id = worker_id
        self._body = body
        self._poll_id = body.poll_id or ""
        self._capabilities = capabilities
        self._claiming: asyncio.Future[Claim] | None = None
        """The last claim."""
        self._leaving: asyncio.Future[None] | None = None
        """Done once the client has disconnected; made when the poll waits or its response is sent."""

    async def claim(self) -> Claim:
        """Claims as soon as this worker can have a task. Raises `ClientDisconnected` or `Unauthorized`."""
        try:
            return await self._wait()
        except BaseException as error:
            self._stop_watching()
            if not isinstance(error, QueueError):
                await asyncio.shield(self._undo())
            raise

    def response(self, document: ResponseSchema) -> Response[bytes]:
        """To be sent at once: it undoes the claim if it cannot be delivered."""
        claim = self._claiming.result() if self._claiming else None
        if claim is None or not claim.tasks:
            self._stop_watching()
            return JsonResponse(encode(document))
        return ClaimResponse(encode(document), self)

    async def deliver(self, response: JsonResponse, send: Send) -> None:
        is_delivered, leaving = False, self._watch()
        try:
            is_delivered = await _deliver(response, send, leaving)
        except OSError as error:
            log.info("client disconnected", error=str(error))
        finally:
            self._stop_watching()
            if not is_delivered:
                await asyncio.shield(self._undo())

    async def _wait(self) -> Claim:
        waiting = WaitingPoll(self._worker_id, "", self._body.available_capacity)
        if not self._body.wait_seconds or self._service.is_closing:
            return await self._service.wakeups.poll(waiting, self._claim, 0)
        with self._service.authenticator.watch_key(self._request.user) as revoked:
            leaving = self._watch()
            for ended in (leaving, revoked):
                ended.add_done_callback(lambda _: waiting.end())
            claim = await self._service.wakeups.poll(waiting, self._claim, self._body.wait_seconds)
            if revoked.done():
                raise Unauthorized(KEY_REVOKED)
        if leaving.done():
            raise ClientDisconnected
        return claim

    async def _claim(self) -> Claim:
        """Not cancelled with its caller: tasks of a dropped reply would be stranded."""
        self._claiming = asyncio.ensure_future(self._claim_and_note())
        return await asyncio.shield(self._claiming)

    async def _claim_and_note(self) -> Claim:
        service, began = self._service, time.perf_counter()
        got = await service.engine.queue.claim(
            self._worker_id,
            self._body.available_capacity,
            poll_id=self._poll_id,
            capabilities=self._capabilities,
            starts=self._body.start_claimed,
        )
        seconds = time.perf_counter() - began
        service.metrics.note_claim(len(got.tasks), seconds)
        if service.tracing is not None and got.tasks and not got.is_repeat:
            began_ns = time.time_ns() - round(seconds * 1e9)
            trace_received(service.tracing, service.settings.queue.queue_name, self._worker_id, got, began_ns)
        return got

    async def _undo(self) -> None:
        """Hands back the tasks of the last claim, unless a later response to the same poll went out."""
        with contextlib.suppress(QueueError):
            claim = await self._claiming if self._claiming else None
            if claim is not None and claim.tasks:
                self._service.metrics.undelivered_count += 1
                await self._hand_back(claim)

    async def _hand_back(self, claim: Claim) -> None:
        engine, starts = self._service.engine, any(task.is_started for task in claim.tasks)
        held = [LeaseRef(task.task_id, task.lease) for task in claim.tasks]
        try:
            if self._poll_id and not claim.is_repeat:
                await engine.queue.undo_claim(self._worker_id, self._poll_id, claim.answer, starts=starts)
            elif not claim.is_repeat:
                await engine.attempts.release(self._worker_id, held)
        except QueueError as error:
            log.warning("undelivered claim not undone, its tasks return by timeout", error=str(error))

    def _watch(self) -> asyncio.Future[None]:
        if self._leaving is None:
            self._leaving = asyncio.ensure_future(disconnected(self._request.receive))
        return self._leaving

    def _stop_watching(self) -> None:
        """The watch is not awaited: it only reads messages, and awaiting it would delay the response."""
        if self._leaving is not None:
            self._leaving.cancel()


class ClaimResponse(JsonResponse):
    def __init__(self, content: bytes, poll: LongPoll) -> None:
        super().__init__(content)
        self._poll = poll

    async def send(self, send: Send) -> None:
        await self._poll.deliver(self, send)


async def _deliver(response: JsonResponse, send: Send, leaving: asyncio.Future[None]) -> bool:
    if await _has_disconnected(leaving, turns=1):
        return False
    await send(response_head(response))
    await send(body_message(response.content[:-1], more=True))
    # Returns when the server's write buffer has room again, so the kernel has what was written.
    await send(body_message(b"", more=True))
    if await _has_disconnected(leaving, turns=TURNS):
        return False
    await send(body_message(response.content[-1:], more=False))
    return True


async def _has_disconnected(leaving: asyncio.Future[None], turns: int) -> bool:
    for _ in range(turns):
        if leaving.done():
            break
        await asyncio.sleep(0)
    return leaving.done()
