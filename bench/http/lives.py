"""A client that takes tasks through their whole life with the `sync` call."""

import asyncio
import time
from collections import defaultdict
from typing import Any

import msgspec

from bench.http.jobs import DONE, LIFE, Done, Lives
from bench.http.wire import Connection, Refused, connect, post

LIFE_ROUND = "life"
"""All three requests of a round."""


class Held(msgspec.Struct):
    task_id: str
    lease: str


class Claimed(msgspec.Struct):
    """The part of a sync's answer that the client needs; the rest is not decoded."""

    tasks: list[Held]


class Registered(msgspec.Struct):
    worker_id: str


class Living:
    def __init__(self, job: Lives) -> None:
        self._job = job
        self._submission = post("/api/v1/tasks/batch", msgspec.json.encode({"tasks": [LIFE] * job.batch}))
        self._flows: list[tuple[Connection, str]] = []
        self._milliseconds: dict[str, list[float]] = defaultdict(list)
        self._next = 0

    async def prepare(self) -> None:
        for _ in range(self._job.flows):
            connection = await connect(self._job.port)
            self._flows.append((connection, await register(connection, self._job.batch, "lives")))

    async def run(self) -> Done:
        self._began = time.perf_counter()
        await asyncio.gather(*(self._live(connection, worker_id) for connection, worker_id in self._flows))
        return Done(self._milliseconds)

    async def _live(self, connection: Connection, worker_id: str) -> None:
        held: list[Held] = []
        while self._next < self._job.rounds:
            self._next += 1
            due = await self._turn(self._next - 1)
            await self._timed("submit", connection, self._submission, due)
            claim = {"results": _results(held), "available_capacity": self._job.batch}
            held = _claimed(
                await self._timed("results and claim", connection, _sync(worker_id, claim)), self._job.batch
            )
            await self._timed("starts", connection, _sync(worker_id, {"starts": held}))
            self._milliseconds[LIFE_ROUND].append((time.perf_counter() - due) * 1000)
        await connection.request(_sync(worker_id, {"results": _results(held)}))

    async def _turn(self, number: int) -> float:
        """Waits for and returns the time at which this round is due; a delay by a late answer counts as latency."""
        if not self._job.rounds_per_second:
            return time.perf_counter()
        due = self._began + number / self._job.rounds_per_second
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        return due

    async def _timed(self, kind: str, connection: Connection, request: bytes, since: float | None = None) -> bytes:
        began = since or time.perf_counter()
        answer = await connection.request(request)
        self._milliseconds[kind].append((time.perf_counter() - began) * 1000)
        return answer


async def register(connection: Connection, capacity: int, task_type: str) -> str:
    worker = {"task_types": [task_type], "capacity": capacity}
    return msgspec.json.decode(await connection.call("/internal/workers/register", worker), type=Registered).worker_id


def _sync(worker_id: str, body: dict[str, Any]) -> bytes:
    return post(f"/internal/workers/{worker_id}/sync", msgspec.json.encode(body))


def _results(held: list[Held]) -> list[dict[str, Any]]:
    return [{"task_id": task.task_id, "lease": task.lease, **DONE} for task in held]


def _claimed(answer: bytes, expected: int) -> list[Held]:
    tasks = msgspec.json.decode(answer, type=Claimed).tasks
    if len(tasks) != expected:
        raise Refused(f"{len(tasks)} tasks were claimed, {expected} were there")
    return tasks
