"""Measures the time from a submission until a waiting worker has the task.

Both ends are in one process and use one clock: from writing the submission to having read the answer of the poll.
"""

import asyncio
import time

import msgspec

from bench.http.jobs import Deliveries, Done
from bench.http.lives import Claimed, Held, register
from bench.http.wire import Connection, connect, post

SETTLE_SECONDS = 0.005
"""Between a poll and the submission: the poll must be waiting, which a caller cannot see."""
POLL = {"available_capacity": 1, "wait_seconds": 30}
SUBMISSION = post("/api/v1/tasks", msgspec.json.encode({"task_type": "awaited"}))


class Delivering:
    def __init__(self, job: Deliveries) -> None:
        self._job = job
        self._bystanders: list[Connection] = []

    async def prepare(self) -> None:
        self._producer, self._waiter = await connect(self._job.port), await connect(self._job.port)
        self._worker_id = await register(self._waiter, 1, "awaited")
        for _ in range(self._job.bystanders):
            bystander = await connect(self._job.port)
            worker_id = await register(bystander, 1, "never-submitted")
            bystander.request(_poll(worker_id))
            self._bystanders.append(bystander)

    async def run(self) -> Done:
        milliseconds = [await self._deliver() for _ in range(self._job.times)]
        for bystander in self._bystanders:
            bystander.close()
        return Done({"delivery": milliseconds})

    async def _deliver(self) -> float:
        polled = self._waiter.request(_poll(self._worker_id))
        await asyncio.sleep(SETTLE_SECONDS)
        began = time.perf_counter()
        submitted = self._producer.request(SUBMISSION)
        answer = await polled
        milliseconds = (time.perf_counter() - began) * 1000
        await submitted
        await self._finish(msgspec.json.decode(answer, type=Claimed).tasks[0])
        return milliseconds

    async def _finish(self, task: Held) -> None:
        held = {"task_id": task.task_id, "lease": task.lease}
        done = {"starts": [held], "results": [{**held, "status": "completed"}]}
        await self._waiter.call(f"/internal/workers/{self._worker_id}/sync", done)


def _poll(worker_id: str) -> bytes:
    return post(f"/internal/workers/{worker_id}/poll", msgspec.json.encode(POLL))
