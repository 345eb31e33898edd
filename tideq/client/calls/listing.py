"""Listing and searching tasks."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from tideq.client.calls.base import Call, answers, get, params, then
from tideq.client.calls.submission import TASKS
from tideq.client.models.pages import Page
from tideq.client.models.tasks import Status, Task, TaskPage

LIST_SECONDS = 10.0
"""A search may look through much before it finds a page."""


class TaskFilter(TypedDict, total=False):
    """Which tasks: all that is given must hold."""

    status: Status | Sequence[Status]
    """In any of these."""
    task_type: str | None
    priority: str | None
    tags: Mapping[str, str]
    """Each must hold."""
    worker_id: str | None
    """Whose the current or last attempt is."""
    trace_id: str | None
    error: str | None
    """Words that its errors hold, all of them."""
    parameters: Mapping[str, str]
    """Where they are searchable for the type, which must be given."""
    created_after: datetime | None
    created_before: datetime | None


def tasks(wanted: TaskFilter, page_size: int, cursor: str | None, *, count: bool) -> Call[Page[Task]]:
    chosen = params(
        status=several(wanted.get("status", ())),
        task_type=wanted.get("task_type"),
        priority=wanted.get("priority"),
        tag=_pairs(wanted.get("tags", {})),
        worker_id=wanted.get("worker_id"),
        trace_id=wanted.get("trace_id"),
        error=wanted.get("error"),
        parameter=_pairs(wanted.get("parameters", {})),
        created_after=wanted.get("created_after"),
        created_before=wanted.get("created_before"),
        limit=page_size,
        cursor=cursor,
        count=True if count else None,
    )
    return get(TASKS, then(answers(TaskPage), _page), chosen, waits_seconds=LIST_SECONDS)


def several(values: str | Iterable[str]) -> tuple[str, ...]:
    """One or many."""
    return (values,) if isinstance(values, str) else tuple(values)


def _page(answer: TaskPage) -> Page[Task]:
    return Page(answer.tasks, answer.next_cursor, answer.total, answer.total_is_exact)


def _pairs(values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}:{value}" for name, value in values.items())
