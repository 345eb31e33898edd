"""Single submissions that come together go to the store together.

A script call for one task costs the store 150 µs and this process 130; each more task in the same call costs 15 and 5.
So what a client submits while a call of its own is under way waits for the next one, and what comes in one turn of the
loop goes as one. Nobody waits for others to come, and clients never share a call: one's refusal is not another's.

Whether a task is taken does not depend on its company: a call that is refused has changed nothing, and every task of it
is then submitted by itself. Only the rate limit's bucket is told as all of them left it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from tideq.queue_core.engine.submission import Prepared
from tideq.queue_core.errors import Refused
from tideq.queue_core.task import Submitted

MAX_TASKS = 64
MAX_BYTES = 262_144
"""Of definitions: a large one goes alone, and does not keep small ones waiting."""
CALLS_AT_A_TIME = 1

Send = Callable[[str, Sequence[Prepared]], Awaitable[list[Submitted]]]


class Waiting(NamedTuple):
    task: Prepared
    answer: "asyncio.Future[Submitted]"


class Client:
    """What one client has waiting, and its calls under way."""

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.calls: set[asyncio.Task[None]] = set()
        self.is_to_go = False

    def next_call(self) -> list[Waiting]:
        """In the order they came; whoever does not want it any more is left out."""
        taken, size = list[Waiting](), 0
        while self.waiting and len(taken) < MAX_TASKS:
            size += len(self.waiting[0].task.definition)
            if taken and size > MAX_BYTES:
                break
            first = self.waiting.popleft()
            if not first.answer.done():
                taken.append(first)
        return taken


class Gathering:
    """`send` submits tasks of one client, all or none."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._clients: dict[str, Client] = {}

    async def submit(self, client_id: str, task: Prepared) -> Submitted:
        loop = asyncio.get_running_loop()
        client = self._clients.setdefault(client_id, Client())
        waiting = Waiting(task, loop.create_future())
        client.waiting.append(waiting)
        if not client.is_to_go and len(client.calls) < CALLS_AT_A_TIME:
            client.is_to_go = True
            loop.call_soon(self._go, client_id)
        return await waiting.answer

    def _go(self, client_id: str) -> None:
        client = self._clients[client_id]
        client.is_to_go = False
        while len(client.calls) < CALLS_AT_A_TIME and (together := client.next_call()):
            call = asyncio.ensure_future(self._call(client_id, together))
            client.calls.add(call)
            call.add_done_callback(lambda done: self._ended(client_id, done))
        if not client.calls:
            del self._clients[client_id]

    def _ended(self, client_id: str, call: "asyncio.Task[None]") -> None:
        self._clients[client_id].calls.discard(call)
        self._go(client_id)

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
            _fail(together, error)
        else:
            for each, answer in zip(together, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)


def _fail(together: Sequence[Waiting], error: Exception) -> None:
    for each in together:
        if not each.answer.done():
            each.answer.set_exception(error)
