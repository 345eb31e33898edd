"""What tests have workers do."""

from typing import Any

from tests.api.bench import Bench, Json, until
from tideq.client import AsyncClient


async def do_one(workers: Bench, task_type: str, result: Any = None) -> Json:
    """The next task of this type, completed."""
    worker_id = await workers.register(task_types=[task_type])
    task = await workers.started(worker_id)
    await workers.tell(worker_id, "result", task, status="completed", result=result)
    return task


async def fail_one(workers: Bench, task_type: str, message: str = "upstream timed out", **error: Any) -> Json:
    """The next task of this type, failed; for good unless told otherwise."""
    worker_id = await workers.register(task_types=[task_type])
    task = await workers.started(worker_id)
    told = {"message": message, "retriable": False, **error}
    await workers.tell(worker_id, "result", task, status="failed", error=told)
    return task


async def recorded(client: AsyncClient, task_id: str) -> None:
    """History has all that happened to this task, and so all that happened before: lists are of history."""

    async def is_recorded() -> bool:
        return (await client.get(task_id, history=True)).history_lag_seconds == 0

    await until(is_recorded)


async def held_back_worker(client: AsyncClient, workers: Bench, task_type: str) -> str:
    """A worker that failed at five tasks of five, and gets no more of this type for a minute."""
    worker_id = await workers.register(task_types=[task_type])
    for _ in range(5):
        await client.submit(task_type, max_retries=0)
        error = {"message": "upstream timed out", "retriable": True}
        await workers.tell(worker_id, "result", await workers.started(worker_id), status="failed", error=error)
    return worker_id
