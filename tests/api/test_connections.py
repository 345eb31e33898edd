"""Waiting costs the store nothing: a crowd of polls shares a handful of connections."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.api.bench import Bench, Json, until
from tests.api.running import serving
from tests.kit import make_kit

POLLS = 1_000
WORKERS = 10
MAX_CONNECTIONS = 10


class OpenPoll:
    """A waiting poll on a connection of its own."""

    def __init__(self, port: int, worker_id: str) -> None:
        self._port = port
        body = json.dumps({"available_capacity": 1, "wait_seconds": 30})
        head = (f"POST /internal/workers/{worker_id}/poll HTTP/1.1", "Host: tideq", f"Content-Length: {len(body)}")
        self._request = "\r\n".join((*head, "", body)).encode()

    async def __aenter__(self) -> "OpenPoll":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(self._request)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def answer(self) -> Json:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
        return json.loads(await self._reader.readexactly(int(length.partition(b":")[2])))


async def test_a_thousand_waiting_polls_hold_at_most_ten_connections(
    client: Any, queue_name: str, server_settings: dict[str, str], tmp_path: Path
) -> None:
    kit = await make_kit(client, queue_name)
    known, received = await _ids(client), await _received(client)

    with serving(server_settings, tmp_path) as server:
        async with httpx.AsyncClient(base_url=server.url) as http, AsyncExitStack() as opened:
            workers = [await Bench(http).register(capacity=POLLS // WORKERS) for _ in range(WORKERS)]
            scripts = await _script_count(client)
            waiting = [OpenPoll(server.port, workers[number % WORKERS]) for number in range(POLLS)]
            polls = [await opened.enter_async_context(poll) for poll in waiting]
            await until(lambda: _have_looked(client, scripts + POLLS))
            while_waiting = len(await _ids(client) - known)
            batch = {"tasks": [{"task_type": "resize"}] * POLLS}
            await Bench(http).call("POST", "/api/v1/tasks/batch", batch)
            answers = [await poll.answer() for poll in polls]

    assert 1 <= while_waiting <= MAX_CONNECTIONS
    assert await _received(client) - received <= MAX_CONNECTIONS
    assert [len(answer["tasks"]) for answer in answers] == [1] * POLLS
    await kit.assert_sound()


async def _ids(client: Any) -> set[Any]:
    return {entry["id"] for entry in await client.client_list()}


async def _received(client: Any) -> int:
    """How many connections the store was ever asked for: those that came and went in between count too."""
    return (await client.info("stats"))["total_connections_received"]


async def _script_count(client: Any) -> int:
    return (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]


async def _have_looked(client: Any, count: int) -> bool:
    """Every poll runs one claim before it waits."""
    return await _script_count(client) >= count
