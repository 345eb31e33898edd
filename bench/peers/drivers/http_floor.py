"""The floor of a queue behind HTTP: a server that ignores the request, writes once to the store and answers.

With one call after the other, a service in Python with a separate store can hardly be faster: per call the server wakes
up twice, its caller and the store once, and none of them does any further work.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections import deque
from typing import Any
from urllib.parse import urlsplit

import protocol
import redis.asyncio
import uvloop
from lean_driver import LeanDriver

LIST = "floor"
PUSH = b"*3\r\n$5\r\nLPUSH\r\n$5\r\nfloor\r\n$40\r\n" + b"x" * 40 + b"\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class HttpFloor(LeanDriver):
    distribution = "uvloop"

    async def open(self) -> None:
        command = (sys.executable, __file__, "worker", json.dumps(vars(self.settings)))
        self.server = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        assert self.server.stdout
        self.settings.service_url = f"http://127.0.0.1:{int(await self.server.stdout.readline())}"
        await super().open()
        self.redis = redis.asyncio.from_url(self.settings.redis_url)

    async def submit_many(self, count: int) -> None:
        await protocol.Driver.submit_many(self, count)

    async def left(self) -> int:
        return await self.redis.llen(LIST)

    def work(self) -> None:
        uvloop.run(_serve(self.settings.redis_url))


class Store(asyncio.Protocol):
    """One connection for all callers; replies arrive in the order of the commands."""

    def __init__(self) -> None:
        self._callers = deque[Any]()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def push(self, caller: Any) -> None:
        self._callers.append(caller)
        self._transport.write(PUSH)

    def data_received(self, data: bytes) -> None:
        for _ in range(data.count(b"\n")):
            self._callers.popleft().write(ANSWER)


class Caller(asyncio.Protocol):
    """A connection with one request at a time, which arrives in one piece."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._store.push(self._transport)


async def _serve(redis_url: str) -> None:
    """Runs until standard input is closed, which happens when the starting process ends."""
    loop, at = asyncio.get_running_loop(), urlsplit(redis_url)
    _, store = await loop.create_connection(Store, at.hostname, at.port)
    server = await loop.create_server(lambda: Caller(store), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    protocol.main(HttpFloor)
