"""Real ids and leases for calls that need one: made up, they are refused before anything else is looked at.

Two of three calls with an id in their path are lent one that is real: a worker that holds a task and has its lease, or
a task that waits, was cancelled, or is dead, in turn. Whatever else is in the call stays as it was made. A case that is
about its path, or without the fields, goes out as it is; so does a sequence of calls, which has ids from its own
answers.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from schemathesis import Case
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

WORKERS = "/internal/workers"
TASKS = "/api/v1/tasks"
LENT = "lent"
"""A type that calls at random do not hit upon."""
SHOWN = "resize"


@dataclass(frozen=True)
class Loan:
    path: str
    fields: dict[str, str] = field(default_factory=dict[str, str])
    """Of the body."""


class Lender:
    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._turns: dict[str, Iterator[Callable[[], str]]] = defaultdict(self._rotation)
        self._is_due: dict[str, Iterator[bool]] = defaultdict(lambda: itertools.cycle((True, True, False)))

    def lend(self, case: Case[Any]) -> Loan | None:
        label: str = case.operation.label
        path = label.partition(" ")[2]
        if "{" not in path or not _may_borrow(case) or not next(self._is_due[label]):
            return None
        if path.startswith(f"{WORKERS}/{{worker_id}}/"):
            return self._held(path)
        if "{worker_id}" in path:
            return Loan(path.replace("{worker_id}", self._worker()))
        return Loan(path.replace("{task_id}", next(self._turns[label])()))

    def bring_work(self, case: Case[Any]) -> None:
        """Before a poll within a sequence: whoever serves the type all examples have shall be given a task."""
        if _is_in_sequence(case) and case.operation.label.endswith(("/poll", "/sync")):
            self._open({})
            self._open({"task_type": SHOWN})
            self._submit(SHOWN)

    def _open(self, scope: dict[str, str]) -> None:
        """Calls at random pause and limit the queue."""
        self._client.post("/api/v1/queue/resume", json=scope).raise_for_status()
        self._client.put("/api/v1/queue/limits", json=scope).raise_for_status()

    def _rotation(self) -> Iterator[Callable[[], str]]:
        return itertools.cycle((self._submit, self._cancelled, self._dead))

    def _held(self, path: str) -> Loan:
        """A task that a new worker was given and, unless that is what is to be said, has started."""
        worker_id, fields = self._given()
        if not path.endswith("/start"):
            self._say(worker_id, "start", fields)
        return Loan(path.replace("{worker_id}", worker_id), fields)

    def _dead(self) -> str:
        worker_id, fields = self._given()
        self._say(worker_id, "start", fields)
        self._say(worker_id, "result", {**fields, "status": "failed", "error": {"message": "no"}})
        return fields["task_id"]

    def _cancelled(self) -> str:
        task_id = self._submit()
        self._client.delete(f"{TASKS}/{task_id}").raise_for_status()
        return task_id

    def _given(self) -> tuple[str, dict[str, str]]:
        worker_id = self._worker()
        self._submit()
        tasks = self._say(worker_id, "poll", {})["tasks"]
        if not tasks:
            self._open({})
            tasks = self._say(worker_id, "poll", {})["tasks"]
        return worker_id, {"task_id": tasks[0]["task_id"], "lease": tasks[0]["lease"]}

    def _worker(self) -> str:
        answer = self._client.post(f"{WORKERS}/register", json={"task_types": [LENT]})
        return answer.raise_for_status().json()["worker_id"]

    def _submit(self, task_type: str = LENT) -> str:
        body = {"task_type": task_type, "priority": "high", "max_retries": 0}
        return self._client.post(TASKS, json=body).raise_for_status().json()["task_id"]

    def _say(self, worker_id: str, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._client.post(f"{WORKERS}/{worker_id}/{verb}", json=body).raise_for_status().json()


def _may_borrow(case: Case[Any]) -> bool:
    if case.meta is None or _is_in_sequence(case):
        return False
    path = case.meta.components.get(ParameterLocation.PATH)
    return path is None or path.mode.is_positive


def _is_in_sequence(case: Case[Any]) -> bool:
    return case.meta is not None and case.meta.phase.name is TestPhase.STATEFUL
