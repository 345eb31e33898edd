"""The part of the worker protocol that taking tasks by hand needs."""

from collections.abc import Sequence
from typing import Any

from tideq.client.calls.base import Call, answers, post, segment
from tideq.client.calls.submission import new_key
from tideq.client.models.pulled import Acknowledged, Beat, Left, Polled, PulledTask, Registered

WORKERS = "/internal/workers"
MAX_POLL = 1_000
MAX_HELD = 10_000


def register(name: str, task_type: str, capabilities: Sequence[str]) -> Call[Registered]:
    fields = {"name": name, "task_types": [task_type], "capabilities": list(capabilities), "capacity": MAX_HELD}
    return post(f"{WORKERS}/register", answers(Registered), fields)


def poll(worker_id: str, count: int, wait_seconds: float) -> Call[Polled]:
    """The id makes it safe to ask again: the same tasks are answered."""
    fields = {"available_capacity": min(count, MAX_POLL), "wait_seconds": wait_seconds, "poll_id": new_key()}
    return post(_path(worker_id, "poll"), answers(Polled), fields, waits_seconds=wait_seconds)


def start(worker_id: str, task: PulledTask) -> Call[Acknowledged]:
    return _say(worker_id, "start", task)


def extend(worker_id: str, task: PulledTask, seconds: float) -> Call[Acknowledged]:
    return _say(worker_id, "extend", task, seconds=seconds)


def complete(worker_id: str, task: PulledTask, result: Any) -> Call[Acknowledged]:
    # None is a result too, and must not be left out with what is not given.
    return _say(worker_id, "result", task, status="completed", **({} if result is None else {"result": result}))


def fail(worker_id: str, task: PulledTask, error: dict[str, Any]) -> Call[Acknowledged]:
    return _say(worker_id, "result", task, status="failed", error=error)


def discard(worker_id: str, task: PulledTask, error: dict[str, Any]) -> Call[Acknowledged]:
    return _say(worker_id, "result", task, status="discarded", error=error)


def release(worker_id: str, tasks: Sequence[PulledTask]) -> Call[Polled]:
    """Hand tasks back, free of charge; what is no longer held is passed over."""
    held = [{"task_id": task.task_id, "lease": task.lease} for task in tasks]
    return post(_path(worker_id, "sync"), answers(Polled), {"releases": held})


def heartbeat(worker_id: str, held_count: int) -> Call[Beat]:
    return post(_path(worker_id, "heartbeat"), answers(Beat), {"current_load": held_count, "status": "active"})


def leave(worker_id: str) -> Call[Left]:
    return Call(method="DELETE", path=f"{WORKERS}/{segment('worker_id', worker_id)}", read=answers(Left))


def _say(worker_id: str, verb: str, task: PulledTask, **fields: Any) -> Call[Acknowledged]:
    return post(_path(worker_id, verb), answers(Acknowledged), {"task_id": task.task_id, "lease": task.lease, **fields})


def _path(worker_id: str, verb: str) -> str:
    return f"{WORKERS}/{segment('worker_id', worker_id)}/{verb}"
