"""Single submissions that come together go to the store together.

A script call for one task costs the store 150 µs and this process 130; each more task in the same call costs 15 and 5.
So the first goes at once and by itself, and what its client submits while a call is under way waits for the next one,
which leaves two turns of the loop after it: what has come by then is read first. Nobody waits for what has not come,
and clients never share a call: one's refusal is not another's.

Whether a task is taken does not depend on its company: a call that is refused has changed nothing, and every task of it
is then submitted by itself. Only the rate limit's bucket is told as all of them left it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tideq.queue_core.errors import Refused
from tideq.queue_core.submission import Prepared
from tideq.queue_core.task import Submitted

MAX_TASKS = 64
MAX_BYTES = 262_144
"""Of definitions: a large one goes alone, and does not keep small ones waiting."""

Send = Callable[[str, Sequence[Prepared]], Awaitable[list[Submitted]]]


class Waiting(NamedTuple):
    task: Prepared
    answer: "asyncio.Future[Submitted]"


class SubmitBatcher:
    """`send` submits tasks of one client, all or none."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: dict[str, deque[Waiting]] = {}
        """Of every client that has a call under way or about to leave."""
        self._calls: set[asyncio.Task[None]] = set()

    async def submit(self, client_id: str, task: Prepared) -> Submitted:
        if client_id in self._waiting:
            waiting = Waiting(task, asyncio.get_running_loop().create_future())
            self._waiting[client_id].append(waiting)
            return await waiting.answer
        self._waiting[client_id] = deque()
        try:
            (answer,) = await self._send(client_id, [task])
            return answer
        finally:
            self._go_soon(client_id)

    def _go_soon(self, client_id: str) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._go, client_id)

    def _go(self, client_id: str) -> None:
        if together := _next_call(self._waiting[client_id]):
            call = asyncio.ensure_future(self._call(client_id, together))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            call.add_done_callback(lambda _: self._go_soon(client_id))
        else:
            del self._waiting[client_id]

    async def _call(self, client_id: str, together: Sequence[Waiting]) -> None:
        try:
            answers = await self._send(client_id, [each.task for each in together])
        except Refused as refusal:
            if len(together) > 1:
                for each in together:
                    await self._call(client_id, [each])
            else:
                _fail(together, refusal)
        except asyncio.CancelledError:
            for each in together:
                each.answer.cancel()
            raise
        except Exception as error:
            # Whatever it is, everybody who waits is told: nobody else would.
            _fail(together, error)
        else:
            for each, answer in zip(together, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)


def _fail(together: Sequence[Waiting], error: Exception) -> None:
    for each in together:
        if not each.answer.done():
            each.answer.set_exception(error)


def _next_call(waiting: deque[Waiting]) -> list[Waiting]:
    """In the order they came; whoever does not want it any more is left out."""
    taken, size = list[Waiting](), 0
    while waiting and len(taken) < MAX_TASKS:
        size += len(waiting[0].task.definition)
        if taken and size > MAX_BYTES:
            break
        first = waiting.popleft()
        if not first.answer.done():
            taken.append(first)
    return taken
