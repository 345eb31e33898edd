"""Waiting for what the test cannot be told of. The limits only end a test that would hang."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.api.bench import Bench, Json
from tests.workers.workshop import Hand

PATIENCE_SECONDS = 120
TERMINAL = ("completed", "failed", "dead_letter", "cancelled")


async def until(is_so: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> None:
    """The condition may be a coroutine function."""
    async with asyncio.timeout(seconds):
        while True:
            found = is_so()
            if (await found) if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.02)


async def ended(bench: Bench, task_id: str) -> Json:
    """The task when it has come to its end; a service that is coming back may need a moment."""
    task: Json = {}

    async def is_ended() -> bool:
        answer = await bench.http.get(f"/api/v1/tasks/{task_id}/wait?timeout_seconds=20")
        if answer.status_code == 503:
            return False
        assert answer.is_success, answer.text
        task.update(answer.json())
        return task["status"] in TERMINAL

    await until(is_ended)
    return task


async def done(bench: Bench, task_type: str, parameters: Json | None = None, **fields: Any) -> Json:
    """Submit one task; returns it when it has come to its end."""
    return await ended(bench, await bench.submit(task_type, parameters=parameters or {}, **fields))


async def submitted(bench: Bench, tasks: Iterable[Json]) -> list[str]:
    answer = await bench.call("POST", "/api/v1/tasks/batch", {"tasks": list(tasks)})
    return [task["task_id"] for task in answer["tasks"]]


async def all_ended(bench: Bench, ids: Iterable[str]) -> list[Json]:
    return [await ended(bench, task_id) for task_id in ids]


async def live_count(bench: Bench) -> int:
    return sum((await bench.call("GET", "/api/v1/queue/stats"))["queue"]["by_state"].values())


async def registrations(bench: Bench, hand: Hand) -> list[Json]:
    """Of one process: one for each crew, and more if it had to register again; all that died in the last hour too."""
    workers: list[Json] = []
    path = "/api/v1/workers?limit=500"
    page = await bench.call("GET", path)
    workers += page["workers"]
    while page["next_cursor"]:
        page = await bench.call("GET", f"{path}&cursor={page['next_cursor']}")
        workers += page["workers"]
    return [worker for worker in workers if worker["name"] == hand.name]
