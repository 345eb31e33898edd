"""A load process: `python -m bench.history.load` reads its job, connects, prints `ready`, starts at the next line."""

import asyncio
import os
import sys
import time
from collections.abc import Sequence

import msgspec
import uvloop

from bench.history.work import Done, Failures, Job, Lives, Steps, Waits, Where, Work
from bench.lifecycle import PAYLOAD, RESULT, new_tasks
from bench.server import NO_LIMITS
from tideq.persistence.recovery.open_store import open_store
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.attempts import Failure, LeaseRef, Success
from tideq.queue_core.engine import Engine
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import ClaimedTask, NewTask, WorkerDeclaration

ERROR = b'{"message":"upstream image-store answered 503 after 3 attempts","code":"UPSTREAM"}'
TAGS = {"env": "production", "customer": "c-1027"}
LATER_MS = 3_600_000


class Loading:
    def __init__(self, engine: Engine, worker_id: str) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._next = 0

    async def run(self, work: Work) -> Done:
        began = time.perf_counter()
        match work:
            case Lives():
                await asyncio.gather(*(self._live(work, began) for _ in range(work.flows)))
            case Steps():
                await self._step(work)
            case Failures():
                await self._fail(work)
            case Waits():
                await self._wait(work)
        return Done(work.tasks, time.perf_counter() - began)

    async def _live(self, work: Lives, began: float) -> None:
        while (number := self._next) < work.tasks:
            self._next += work.batch
            if work.tasks_per_second:
                await asyncio.sleep(max(began + number / work.tasks_per_second - time.perf_counter(), 0))
            await self._engine.queue.submit_many(new_tasks(work.batch))
            tasks = await self._claim(work.batch)
            await self._start(tasks)
            await self._complete(tasks)

    async def _step(self, work: Steps) -> None:
        rounds = range(work.tasks // work.batch)
        for _ in rounds:
            await self._engine.queue.submit_many(new_tasks(work.batch))
        claimed = [await self._claim(work.batch) for _ in rounds]
        for tasks in claimed:
            await self._start(tasks)
        for tasks in claimed:
            await self._complete(tasks)

    async def _fail(self, work: Failures) -> None:
        new = [NewTask(task_type="x", parameters=PAYLOAD, tags=TAGS)] * work.batch
        for _ in range(work.tasks // work.batch):
            await self._engine.queue.submit_many(new)
            tasks = await self._claim(work.batch)
            await self._start(tasks)
            failures = [Failure(task.task_id, task.lease, ERROR, verdict="fail") for task in tasks]
            await self._engine.attempts.fail(self._worker_id, failures)

    async def _wait(self, work: Waits) -> None:
        later = NewTask(task_type="x", parameters=PAYLOAD, delay_ms=LATER_MS)
        new = [later if number % 20 == 0 else each for number, each in enumerate(new_tasks(work.batch))]
        for _ in range(work.tasks // work.batch):
            await self._engine.queue.submit_many(new)
            await self._start(await self._claim(work.batch // 100))

    async def _claim(self, count: int) -> Sequence[ClaimedTask]:
        tasks = (await self._engine.queue.claim(self._worker_id, count)).tasks
        if len(tasks) != count:
            raise RuntimeError(f"{len(tasks)} tasks were claimed, {count} were there")
        return tasks

    async def _start(self, tasks: Sequence[ClaimedTask]) -> None:
        await self._engine.attempts.start(self._worker_id, [LeaseRef(task.task_id, task.lease) for task in tasks])

    async def _complete(self, tasks: Sequence[ClaimedTask]) -> None:
        await self._engine.attempts.complete(
            self._worker_id, [Success(task.task_id, task.lease, RESULT) for task in tasks]
        )


async def main() -> None:
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    async with open_store(job.where.redis_url, _queue(job.where), _history(job.where)) as store:
        worker_id = f"bench-{os.getpid()}"
        await store.engine.fleet.register(WorkerDeclaration(worker_id=worker_id, capacity=1_000))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        sys.stdout.buffer.write(msgspec.json.encode(await Loading(store.engine, worker_id).run(job.work)) + b"\n")


def _queue(where: Where) -> QueueSettings:
    return QueueSettings(queue_name=where.queue_name, admission=NO_LIMITS)


def _history(where: Where) -> HistorySettings:
    return HistorySettings(database_url=where.database_url)


if __name__ == "__main__":
    uvloop.run(main())
