"""A lean HTTP/1.1 client: one request at a time on a persistent connection, bytes in, bytes out.

It reads only answers with a Content-Length, as our servers send them. Each answer without success is an error, because
refusals are faster than the real work.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

END_OF_HEAD = b"\r\n\r\n"
LENGTH = b"content-length:"
BATCH = 500


class Refused(RuntimeError):
    """The server answered with an error; a measurement that goes on after it would be wrong."""


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(END_OF_HEAD)
        if not found or self._answer is None or len(body) < _length(head):
            return
        answer, self._answer, self._received = self._answer, None, b""
        if head[9:10] == b"2":
            answer.set_result(body)
        else:
            answer.set_exception(Refused(f"{head.splitlines()[0].decode()}: {body[:500].decode()}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Refused("the connection ended before the answer"))

    def request(self, request: bytes) -> asyncio.Future[bytes]:
        """Sends a request; the future has the body of the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    async def call(self, path: str, body: Any) -> bytes:
        return await self.request(post(path, msgspec.json.encode(body)))

    def close(self) -> None:
        """An answer still to come is ignored."""
        self._answer = None
        self._transport.close()


def post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: tideq\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
    return connection


async def submit(port: int, tasks: Sequence[Mapping[str, object]]) -> None:
    """In batches, on one connection."""
    connection = await connect(port)
    for start in range(0, len(tasks), BATCH):
        await connection.call("/api/v1/tasks/batch", {"tasks": tasks[start : start + BATCH]})
    connection.close()


async def queue_counts(connection: Connection) -> dict[str, Any]:
    """The live tasks of the queue, as `by_state` and `by_type`."""
    return msgspec.json.decode(await connection.request(b"GET /api/v1/queue/stats HTTP/1.1\r\nhost: x\r\n\r\n"))[
        "queue"
    ]


def _length(head: bytes) -> int:
    lower = head.lower()
    return int(lower[lower.index(LENGTH) + len(LENGTH) :].partition(b"\r\n")[0])
