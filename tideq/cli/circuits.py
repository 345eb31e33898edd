"""Workers that are held back from task types because they failed too often, in words."""

from collections.abc import Iterable

from tideq.client import BlockedType, Worker

MAX_NAMED = 3
"""A worker whose every type fails may have hundreds."""


def is_held_back(worker: Worker) -> bool:
    return bool(worker.held_back) and worker.status != "dead"


def is_held_back_from(worker: Worker, task_type: str) -> bool:
    return is_held_back(worker) and any(each.task_type in (None, task_type) for each in worker.held_back)


def held_back_words(worker: Worker) -> str:
    """`resize until 12:00:05Z, crawl on trial`; empty where the worker gets whatever it can do."""
    if not is_held_back(worker):
        return ""
    left_out = len(worker.held_back) - MAX_NAMED
    named = [_words(each) for each in worker.held_back[:MAX_NAMED]]
    return ", ".join([*named, f"and {left_out} more"] if left_out > 0 else named)


def reasons(circuits: Iterable[BlockedType]) -> str:
    """Why, as the service says it, each reason once."""
    return "; ".join(dict.fromkeys(each.reason for each in circuits))


def _words(each: BlockedType) -> str:
    task_type = each.task_type or "all types"
    return f"{task_type} until {each.until:%H:%M:%SZ}" if each.until else f"{task_type} on trial"
