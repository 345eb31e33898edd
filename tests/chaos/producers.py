"""Those who hand in tasks, ask after them, call them off and have them run again."""

import asyncio
from collections import deque
from typing import Any

from tests.chaos.callers import Caller
from tests.chaos.levels import Level

TASK = dict[str, Any]
RECENT = 2_000
LATEST = 40
REPEATS = 6
TASKS_PATH = "/api/v1/tasks"


class Producer:
    """Every task carries a mark of its own, by which it is known whatever its answer came to."""

    def __init__(self, caller: Caller, level: Level) -> None:
        self._caller = caller
        self._random = caller.random
        self._level = level
        self._count = 0
        self._ids: deque[str] = deque(maxlen=RECENT)
        self._keyed: deque[tuple[TASK, str]] = deque(maxlen=100)
        self.is_over = False

    async def run(self) -> None:
        """Ends between two calls, so that every answer is noted."""
        while not self.is_over:
            await self._act()
            await asyncio.sleep(self._level.pause_seconds * self._random.random() * 2)

    async def _act(self) -> None:
        chance = self._random.random()
        if chance < 0.45:
            await self._submit_batch()
        elif chance < 0.70:
            await self._submit_keyed()
        elif not self._ids or not self._keyed:
            return
        elif chance < 0.76:
            await self._repeat_key()
        elif chance < 0.90:
            await self._about("read", "GET", "")
        elif chance < 0.96:
            await self._about("cancel", "DELETE", "")
        else:
            await self._about("retry", "POST", "/retry")

    def task(self) -> TASK:
        self._count += 1
        mark = f"{self._caller.name}.{self._count}"
        is_for_hands = self._random.random() < self._level.hand_share
        parameters: TASK = {"mark": mark}
        if not is_for_hands:
            parameters |= {
                "how": self._how(),
                "seconds": 0.3 if self._random.random() < self._level.slow_share else 0.0,
            }
        fields: TASK = {"timeout_seconds": 5} if is_for_hands else {"timeout_seconds": 20}
        if self._random.random() < 0.05:
            fields["delay_seconds"] = round(self._random.uniform(0.3, 2.0), 3)
        priority = self._random.choice(["high", "medium", "medium", "low"])
        return {
            "task_type": "hand" if is_for_hands else "work",
            "parameters": parameters,
            "priority": priority,
        } | fields

    def _how(self) -> str:
        chance = self._random.random()
        if chance < self._level.poison_share:
            return "die"
        return "fatal" if chance > 0.99 else "once" if chance > 0.94 else "well"

    async def _submit_batch(self) -> None:
        tasks = [self.task() for _ in range(self._random.randint(1, self._level.batch_size))]
        told = await self._caller.call(
            "submit", "POST", f"{TASKS_PATH}/batch", {"tasks": tasks}, marks=_marks(tasks), delays=_delays(tasks)
        )
        if told.outcome == "ok":
            ids = [each["task_id"] for each in told.body["tasks"]]
            self._told(tasks, ids, "store", told.began)

    async def _submit_keyed(self) -> None:
        """Until somebody says yes or no, always under the same key."""
        task = self.task()
        task["idempotency_key"] = task["parameters"]["mark"]
        if self._random.random() < 0.25:
            task["durability"] = "history"
        for _ in range(REPEATS):
            told = await self._submit(task)
            if told in ("ok", "refused"):
                return
            await asyncio.sleep(self._random.random() * 0.3)

    async def _submit(self, task: TASK) -> str:
        facts = {"marks": _marks([task]), "delays": _delays([task]), "key": task["idempotency_key"]}
        told = await self._caller.call("submit", "POST", TASKS_PATH, task, **facts)
        if told.outcome == "ok":
            durability = told.body.get("durability", "store")
            self._told([task], [told.body["task_id"]], durability, told.began)
            self._keyed.append((task, told.body["task_id"]))
        return "refused" if told.outcome == "fail" and told.status < 429 else told.outcome

    def _told(self, tasks: list[TASK], ids: list[str], durability: str, began: int) -> None:
        """Beside the call itself: one note of who is who."""
        self._ids.extend(ids)
        self._caller.tell("acknowledged", t0=began, marks=_marks(tasks), ids=ids, durability=durability)

    async def _repeat_key(self) -> None:
        task, _ = self._random.choice(self._keyed)
        if self._random.random() < 0.6:
            await self._submit(task)
        else:
            # Little: where the store lost the first one, and its key, this one is taken, and has to end in time.
            other = {**task, "parameters": {**task["parameters"], "seconds": 0.1}}
            facts = {"key": task["idempotency_key"], "marks": _marks([task])}
            await self._caller.call("submit_other", "POST", TASKS_PATH, other, **facts)

    async def _about(self, f: str, method: str, path: str) -> None:
        """Calling off and the like are for the latest: most others have ended."""
        known = list(self._ids)
        task_id = self._random.choice(known if f == "read" else known[-LATEST:])
        await self._caller.call(f, method, f"{TASKS_PATH}/{task_id}{path}", task_id=task_id)


def _marks(tasks: list[TASK]) -> list[str]:
    return [task["parameters"]["mark"] for task in tasks]


def _delays(tasks: list[TASK]) -> dict[str, int]:
    """Milliseconds, by mark."""
    return {
        task["parameters"]["mark"]: round(task["delay_seconds"] * 1000) for task in tasks if "delay_seconds" in task
    }
