"""Reading server-sent events as a browser does: the last id is kept, and a block without data tells nothing."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

import httpx

from tests.api.bench import Json

EVENTS = "/api/v1/events"


@dataclass
class Message:
    id: str
    event: str
    data: Json

    @property
    def task(self) -> tuple[str, int]:
        """Which transition it tells of."""
        return self.data["task_id"], self.data["version"]


@dataclass
class Listening:
    last_id: str = ""
    comments: list[str] = field(default_factory=list[str])
    messages: asyncio.Queue[Message] = field(default_factory=asyncio.Queue[Message])
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self, count: int) -> list[Message]:
        async with asyncio.timeout(60):
            return [await self.messages.get() for _ in range(count)]

    async def read(self, lines: AsyncIterator[str]) -> None:
        fields: dict[str, str] = {}
        async for line in lines:
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            else:
                self._dispatch(fields)
                fields = {}
        self.is_over.set()

    def _dispatch(self, fields: dict[str, str]) -> None:
        self.last_id = fields.get("id", self.last_id)
        if "data" in fields:
            message = Message(self.last_id, fields.get("event", "message"), json.loads(fields["data"]))
            self.messages.put_nowait(message)


@contextlib.asynccontextmanager
async def listening(http: httpx.AsyncClient, query: str = "", last_id: str = "") -> AsyncGenerator[Listening]:
    """Open, and greeted: what happens from now on is heard."""
    headers = {"Last-Event-ID": last_id} if last_id else {}
    heard = Listening()
    async with http.stream("GET", f"{EVENTS}?{query}", headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        reading = asyncio.create_task(heard.read(answer.aiter_lines()))
        while not heard.comments:
            await asyncio.sleep(0.001)
        try:
            yield heard
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
