"""Producers and workers that behave as clients should: every call may be repeated, and is, until it is answered.

A connection that fails and a 503 mean "ask again, perhaps elsewhere"; anything else is the answer. What was answered is
counted, so that a test can say what never was.
"""

import asyncio
import itertools
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.api.bench import Json, held

POLL_SECONDS = 1
CAPACITY = 10
ASK_AGAIN_SECONDS = 0.02
HANG_SECONDS = 150
"""Nothing is measured by it: a machine under load starts a process in seven seconds instead of one."""


@dataclass
class Traffic:
    urls: Sequence[str]
    statuses: Counter[int] = field(default_factory=Counter[int])
    broken_count: int = 0
    """Connections that failed before the answer."""
    acknowledged: list[str] = field(default_factory=list[str])
    completed: Counter[str] = field(default_factory=Counter[str])
    is_producing: bool = True

    async def __aenter__(self) -> "Traffic":
        self._http = await self._open.enter_async_context(httpx.AsyncClient(timeout=20))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    def __post_init__(self) -> None:
        self._open = AsyncExitStack()
        self._places = itertools.cycle(self.urls)

    async def produce(self) -> None:
        """Until told to stop. The key makes a repeated submission the same one."""
        while self.is_producing:
            task = {"task_type": "carry", "idempotency_key": uuid.uuid4().hex}
            self.acknowledged.append((await self.call("/api/v1/tasks", task))["task_id"])

    async def work(self) -> None:
        """Until everything acknowledged is completed."""
        worker_id = (await self.call("/internal/workers/register", {"capacity": CAPACITY}))["worker_id"]
        path = f"/internal/workers/{worker_id}"
        while self.is_producing or len(self.completed) < len(self.acknowledged):
            asked = {"available_capacity": CAPACITY, "wait_seconds": POLL_SECONDS, "poll_id": uuid.uuid4().hex}
            if tasks := (await self.call(f"{path}/poll", asked))["tasks"]:
                await self._carry_out(path, [held(task) for task in tasks])

    async def _carry_out(self, path: str, tasks: list[Json]) -> None:
        results = [{**task, "status": "completed", "result": task["lease"]} for task in tasks]
        for told in ({"starts": tasks}, {"results": results}):
            outcomes = (await self.call(f"{path}/sync", told))["outcomes"]
            assert all(outcome["ok"] for outcome in outcomes), outcomes
        self.completed.update(task["task_id"] for task in tasks)

    async def call(self, path: str, body: Any) -> Json:
        place = next(self._places)
        while True:
            try:
                answer = await self._http.post(place + path, json=body)
            except httpx.TransportError:
                self.broken_count += 1
            else:
                self.statuses[answer.status_code] += 1
                if answer.status_code != 503:
                    assert answer.is_success, answer.text
                    return answer.json()
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            place = next(self._places)

    async def run(self, disturb: Any, producers: int = 2, workers: int = 4) -> None:
        """Traffic while `disturb` lasts; then what was acknowledged is finished."""
        async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as flows:
            for _ in range(workers):
                flows.create_task(self.work())
            for _ in range(producers):
                flows.create_task(self.produce())
            try:
                await disturb
            finally:
                self.is_producing = False

    def assert_nothing_lost(self) -> None:
        assert set(self.statuses) <= {200, 201, 503}
        assert len(self.acknowledged) == len(set(self.acknowledged))
        assert self.completed == Counter(self.acknowledged)
