"""Scripted workers over plain HTTP: they lose track, repeat themselves, come late, vanish, and note what they hear."""

import asyncio
import time
from typing import Any

from tests.chaos.callers import Caller, Told

REPEATS = 3
WAIT_SECONDS = 2
CAPACITY = 6
EARLY_SECONDS = 0.2
MAX_LATE_SECONDS = 12
Task = dict[str, Any]


class Hand:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._random = caller.random
        self._worker_id = ""
        self._poll_count = 0
        self._late: list[tuple[float, str, Task]] = []
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            if not self._worker_id:
                await self._register()
            else:
                await self._take_turn()

    async def _register(self) -> None:
        body = {"task_types": ["hand"], "capacity": CAPACITY, "name": self._caller.name}
        told = await self._caller.call("register", "POST", "/internal/workers/register", body)
        if told.outcome == "ok":
            self._worker_id = told.body["worker_id"]

    async def _take_turn(self) -> None:
        asked_at = time.monotonic()
        tasks = await self._poll()
        if not tasks and time.monotonic() - asked_at < EARLY_SECONDS:
            await asyncio.sleep(EARLY_SECONDS)  # told to stop something, it is not made to wait
        for task in tasks:
            await self._handle(task)
        if tasks and self._random.random() < 0.02:
            self._worker_id = ""  # vanishes with whatever it holds
        await self._come_late()

    async def _poll(self) -> list[Task]:
        """A lost answer is asked for again under the same id."""
        self._poll_count += 1
        body = {"available_capacity": CAPACITY, "wait_seconds": WAIT_SECONDS, "poll_id": f"p{self._poll_count}"}
        body["start_claimed"] = self._random.random() < 0.5
        for _ in range(REPEATS):
            told = await self._caller.poll(self._worker_id, body)
            if told.status == 404:
                self._worker_id = ""
            if told.outcome != "info":
                return told.body["tasks"] if told.outcome == "ok" else []
        return []

    async def _handle(self, task: Task) -> None:
        chance = self._random.random()
        if chance < 0.05:
            return  # forgotten at once: lapses, or times out if it came started
        if chance < 0.08:
            await self._sync_release(task)
            return
        if task["status"] == "assigned" and (await self._insist("start", task, {})).outcome == "fail":
            return
        if self._random.random() < 0.2:
            await self._say("progress", task, {"progress_percent": 50, "status_message": "half"})
        if self._random.random() < 0.1:
            await self._say("extend", task, {"seconds": 1})
        await self._finish(task)

    async def _finish(self, task: Task) -> None:
        chance = self._random.random()
        if chance < 0.03:
            return  # started, and forgotten: times out
        if chance < 0.08:
            due_at = time.monotonic() + self._random.random() * MAX_LATE_SECONDS
            self._late.append((due_at, self._worker_id, task))
        elif chance < 0.18:
            await self._insist("result", task, _error(retriable=True))
        elif chance < 0.21:
            await self._insist("result", task, _error(retriable=False))
        else:
            await self._complete(task)

    async def _complete(self, task: Task) -> None:
        """Now and then somebody calls the task off just before its result is there."""
        result = self._result(task)
        if self._random.random() < 0.05:
            path = f"/api/v1/tasks/{task['task_id']}"
            await self._caller.call("cancel", "DELETE", path, task_id=task["task_id"], lease=task["lease"])
        await self._insist("result", task, result)
        chance = self._random.random()
        if chance < 0.10:
            await self._say("result", task, result)
        elif chance < 0.15:
            await self._say("result", task, self._result(task))

    def _result(self, task: Task) -> dict[str, Any]:
        return {"status": "completed", "result": {"by": self._caller.name, "n": self._random.getrandbits(40)}}

    async def _come_late(self) -> None:
        """With what others may long have done again."""
        due = [late for late in self._late if late[0] < time.monotonic()]
        self._late = [late for late in self._late if late not in due]
        for _, worker_id, task in due:
            await self._say("result", task, self._result(task), worker_id)

    async def _insist(self, f: str, task: Task, body: dict[str, Any]) -> Told:
        """The same again until it is known."""
        told = Told("info", 0, None)
        for _ in range(REPEATS):
            told = await self._say(f, task, body)
            if told.outcome != "info":
                break
        return told

    async def _say(self, f: str, task: Task, body: dict[str, Any], worker_id: str = "") -> Told:
        worker_id = worker_id or self._worker_id
        held = {"task_id": task["task_id"], "lease": task["lease"]}
        facts = {**held, "worker": worker_id, "attempt": task["attempt"], "said": body}
        return await self._caller.call(f, "POST", f"/internal/workers/{worker_id}/{f}", {**held, **body}, **facts)

    async def _sync_release(self, task: Task) -> None:
        held = {"task_id": task["task_id"], "lease": task["lease"]}
        body = {"releases": [held], "available_capacity": 0}
        path = f"/internal/workers/{self._worker_id}/sync"
        await self._caller.call("release", "POST", path, body, **held, worker=self._worker_id)


def _error(*, retriable: bool) -> dict[str, Any]:
    return {"status": "failed", "error": {"message": "it broke", "code": "BROKE", "retriable": retriable}}
