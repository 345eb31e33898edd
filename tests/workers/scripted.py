"""A service that does what the test says: answers, answers wrongly, hangs, or hangs up."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

Json = dict[str, Any]
HANG_UP = None
PROBLEMS = "https://tideq.dev/problems/"


@dataclass
class Reply:
    status: int = 200
    body: Any = field(default_factory=dict[str, Any])
    headers: str = ""

    def encoded(self) -> bytes:
        content = self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)
        head = f"HTTP/1.1 {self.status} x\r\nContent-Length: {len(content)}\r\n{self.headers}\r\n"
        return head.encode() + content


def problem(status: int, code: str) -> Reply:
    return Reply(status, {"type": PROBLEMS + code, "detail": "as the test says"})


Script = Callable[[str, Json], Awaitable[Reply | None]]


def outcomes_of(body: Json, *refused: str) -> list[Json]:
    """As the service orders them; `refused` are leases."""
    names = ("starts", "progress", "extends", "results", "releases")
    rows = [row for name in names for row in body.get(name, ())]
    stale = {"type": f"{PROBLEMS}stale-lease", "detail": "as the test says"}
    return [
        {"task_id": row["task_id"], "ok": False, "problem": stale}
        if row["lease"] in refused
        else {"task_id": row["task_id"], "ok": True}
        for row in rows
    ]


async def obliging(path: str, body: Json) -> Reply:
    """Takes everything, and has no work."""
    if path.endswith("/register"):
        return Reply(201, {"worker_id": "w1", "heartbeat_interval_ms": 30_000})
    if path.endswith("/sync"):
        return Reply(200, {"outcomes": outcomes_of(body), "tasks": [], "cancel": [], "should_drain": False})
    if path.endswith("/poll"):
        await asyncio.sleep(body["wait_seconds"])
    return Reply(200, {"tasks": [], "cancel": [], "should_drain": False})


class ScriptedService:
    def __init__(self) -> None:
        self.script: Script = obliging
        self.heard: list[tuple[str, Json]] = []
        self.url = ""
        self._serving: set[asyncio.Task[None]] = set()

    def bodies(self, verb: str) -> list[Json]:
        return [body for path, body in self.heard if path.endswith(f"/{verb}")]

    def rows(self, name: str) -> list[Json]:
        """Of all syncs."""
        return [row for body in self.bodies("sync") for row in body.get(name, ())]

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while head := await reader.readuntil(b"\r\n\r\n"):
                path, body = await self._request(head, reader)
                self.heard.append((path, body))
                reply = await self.script(path, body)
                if reply is None:
                    return
                writer.write(reply.encoded())
                await writer.drain()

    async def _request(self, head: bytes, reader: asyncio.StreamReader) -> tuple[str, Json]:
        lines = head.decode().split("\r\n")
        sizes = [int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")]
        content = await reader.readexactly(sizes[0]) if sizes and sizes[0] else b"{}"
        return lines[0].split()[1], msgspec.json.decode(content)


@contextlib.asynccontextmanager
async def scripted_service() -> AsyncGenerator[ScriptedService]:
    service = ScriptedService()
    server = await asyncio.start_server(service.accept, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        await service.close()
