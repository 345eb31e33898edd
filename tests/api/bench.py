"""The API as its callers see it: the shortest way to each call, and what a problem document must be."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

PROBLEMS = "https://tideq.dev/problems/"
Json = dict[str, Any]


@dataclass(frozen=True)
class Bench:
    http: httpx.AsyncClient

    async def submit(self, task_type: str = "resize", **fields: Any) -> str:
        return (await self.call("POST", "/api/v1/tasks", {"task_type": task_type, **fields}))["task_id"]

    async def read(self, task_id: str) -> Json:
        return await self.call("GET", f"/api/v1/tasks/{task_id}")

    async def register(self, **fields: Any) -> str:
        return (await self.call("POST", "/internal/workers/register", fields))["worker_id"]

    async def poll(self, worker_id: str, **fields: Any) -> Json:
        return await self.call("POST", f"/internal/workers/{worker_id}/poll", {"available_capacity": 1, **fields})

    async def claimed(self, worker_id: str, **fields: Any) -> Json:
        """The one task that a poll for one gives."""
        (task,) = (await self.poll(worker_id, **fields))["tasks"]
        return task

    async def started(self, worker_id: str) -> Json:
        task = await self.claimed(worker_id)
        await self.tell(worker_id, "start", task)
        return task

    async def tell(self, worker_id: str, verb: str, task: Json, **fields: Any) -> Json:
        answer = await self.try_tell(worker_id, verb, task, **fields)
        assert answer.is_success, answer.text
        return answer.json()

    async def try_tell(self, worker_id: str, verb: str, task: Json, **fields: Any) -> httpx.Response:
        return await self.http.post(f"/internal/workers/{worker_id}/{verb}", json={**held(task), **fields})

    async def sync(self, worker_id: str, **fields: Any) -> Json:
        return await self.call("POST", f"/internal/workers/{worker_id}/sync", fields)

    async def call(self, method: str, path: str, body: Any = None) -> Json:
        answer = await self.http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()


def held(task: Json) -> Json:
    return {"task_id": task["task_id"], "lease": task["lease"]}


def assert_problem(answer: httpx.Response, status: int, code: str = "") -> Json:
    """A problem document of this status, and of this kind where one is named."""
    assert answer.status_code == status, f"{answer.status_code} instead of {status}: {answer.text[:500]}"
    assert answer.headers["content-type"].partition(";")[0] == "application/problem+json"
    document = answer.json()
    assert document["type"].startswith(PROBLEMS)
    assert document["type"].endswith(f"/{code}" if code else "")
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    return document


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Waits for a condition that the test cannot be told of; the suite's own time limit is the only other end."""
    async with asyncio.timeout(60):
        while not await is_so():
            await asyncio.sleep(0.002)
