"""Calls of the worker protocol that pull queues need."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tideq.client.calls.base import Call, answers, post, segment, then
from tideq.client.calls.submission import Batch, new_key
from tideq.client.encoding import encode
from tideq.client.models.pulled import (
    Acknowledged,
    Deregistered,
    HeartbeatReply,
    Polled,
    PulledTask,
    Registered,
    ReportOutcome,
    Synced,
)

WORKERS = "/internal/workers"
MAX_POLL = 1_000
MAX_HELD = 10_000


def register(name: str, task_types: Sequence[str], capabilities: Sequence[str]) -> Call[Registered]:
    declared = {"task_types": list(task_types), "capabilities": list(capabilities)}
    return post(f"{WORKERS}/register", answers(Registered), {"name": name, "capacity": MAX_HELD, **declared})


def poll(worker_id: str, count: int, wait_seconds: float) -> Call[Polled]:
    """Repeatable: the service returns the same tasks for the same poll id."""
    fields = {"available_capacity": min(count, MAX_POLL), "wait_seconds": wait_seconds, "poll_id": new_key()}
    return post(_path(worker_id, "poll"), answers(Polled), fields, waits_seconds=wait_seconds)


def start(worker_id: str, task: PulledTask) -> Call[Acknowledged]:
    return _call(worker_id, "start", task.task_id, task.lease)


def extend(worker_id: str, task_id: str, lease: str, seconds: float) -> Call[Acknowledged]:
    return _call(worker_id, "extend", task_id, lease, seconds=seconds)


def progress(worker_id: str, task_id: str, lease: str, percent: float, message: str) -> Call[Acknowledged]:
    return _call(worker_id, "progress", task_id, lease, progress_percent=percent, status_message=message)


def completed(task: PulledTask, result: Any) -> bytes:
    return _result(task, status="completed", result=result)


def failed(task: PulledTask, error: Mapping[str, Any] | msgspec.Raw) -> bytes:
    return _result(task, status="failed", error=error)


def discarded(task: PulledTask, error: Mapping[str, Any] | msgspec.Raw) -> bytes:
    return _result(task, status="discarded", error=error)


def report(worker_id: str, result: bytes) -> Call[Acknowledged]:
    """Reports the result of one task."""
    return Call(method="POST", path=_path(worker_id, "result"), read=answers(Acknowledged), body=result)


def report_many(worker_id: str, results: Batch) -> Call[tuple[ReportOutcome, ...]]:
    """Reports the results of many tasks; each is accepted or refused by itself."""
    return Call(
        method="POST",
        path=_path(worker_id, "sync"),
        read=then(answers(Synced), lambda reply: reply.outcomes),
        body=b'{"results":[%b]}' % b",".join(results.bodies),
        waits_seconds=30.0,
    )


def release(worker_id: str, tasks: Sequence[PulledTask]) -> Call[Polled]:
    """Releases tasks at no cost; ignores tasks that are no longer held."""
    held = [{"task_id": task.task_id, "lease": task.lease} for task in tasks]
    return post(_path(worker_id, "sync"), answers(Polled), {"releases": held})


def heartbeat(worker_id: str, held_count: int) -> Call[HeartbeatReply]:
    return post(
        _path(worker_id, "heartbeat"), answers(HeartbeatReply), {"current_load": held_count, "status": "active"}
    )


def deregister(worker_id: str) -> Call[Deregistered]:
    return Call(method="DELETE", path=f"{WORKERS}/{segment('worker_id', worker_id)}", read=answers(Deregistered))


def _result(task: PulledTask, **fields: Any) -> bytes:
    return encode({"task_id": task.task_id, "lease": task.lease, **fields})


def _call(worker_id: str, verb: str, task_id: str, lease: str, **fields: Any) -> Call[Acknowledged]:
    return post(_path(worker_id, verb), answers(Acknowledged), {"task_id": task_id, "lease": lease, **fields})


def _path(worker_id: str, verb: str) -> str:
    return f"{WORKERS}/{segment('worker_id', worker_id)}/{verb}"
