"""Describes the task types a worker is blocked from because it failed too often at them."""

from collections.abc import Iterable

from tideq.client import BlockedType, WorkerInfo

MAX_NAMED = 3
"""A worker may be blocked from hundreds of types."""


def is_blocked(worker: WorkerInfo) -> bool:
    return bool(worker.blocked_types) and worker.status != "dead"


def is_blocked_from(worker: WorkerInfo, task_type: str) -> bool:
    return is_blocked(worker) and any(each.task_type in (None, task_type) for each in worker.blocked_types)


def blocked_types_text(worker: WorkerInfo) -> str:
    """`resize until 12:00:05Z, crawl on trial`; empty for a worker that is blocked from no type."""
    if not is_blocked(worker):
        return ""
    left_out = len(worker.blocked_types) - MAX_NAMED
    named = [_words(each) for each in worker.blocked_types[:MAX_NAMED]]
    return ", ".join([*named, f"and {left_out} more"] if left_out > 0 else named)


def reasons(circuits: Iterable[BlockedType]) -> str:
    """The service's reasons, each once."""
    return "; ".join(dict.fromkeys(each.reason for each in circuits))


def _words(each: BlockedType) -> str:
    task_type = each.task_type or "all types"
    return f"{task_type} until {each.until:%H:%M:%SZ}" if each.until else f"{task_type} on trial"
