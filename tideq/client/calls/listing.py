"""Calls to list and search tasks."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from tideq.client.calls.base import Call, answers, get, params, then
from tideq.client.calls.submission import TASKS
from tideq.client.models.tasks import Page, Status, Task, TaskPage

LIST_SECONDS = 10.0
"""Added to the read timeout: a search may scan much before it fills a page."""


class TaskFilter(TypedDict, total=False):
    """Filters for tasks; all must match."""

    status: Status | Sequence[Status]
    """Any of these."""
    task_type: str | None
    priority: str | None
    tags: Mapping[str, str]
    """All of these."""
    worker_id: str | None
    """Worker of the current or last attempt."""
    trace_id: str | None
    error: str | None
    """Words that must all occur in its errors."""
    parameters: Mapping[str, str]
    """Requires `task_type`, for which these parameters must be searchable."""
    created_after: datetime | None
    created_before: datetime | None


def tasks(filters: TaskFilter, page_size: int, cursor: str | None, *, count: bool) -> Call[Page[Task]]:
    query = params(
        status=several(filters.get("status", ())),
        task_type=filters.get("task_type"),
        priority=filters.get("priority"),
        tag=_pairs(filters.get("tags", {})),
        worker_id=filters.get("worker_id"),
        trace_id=filters.get("trace_id"),
        error=filters.get("error"),
        parameter=_pairs(filters.get("parameters", {})),
        created_after=filters.get("created_after"),
        created_before=filters.get("created_before"),
        limit=page_size,
        cursor=cursor,
        count=True if count else None,
    )
    return get(TASKS, then(answers(TaskPage), _page), query, waits_seconds=LIST_SECONDS)


def several(values: str | Iterable[str]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else tuple(values)


def _page(answer: TaskPage) -> Page[Task]:
    return Page(answer.tasks, answer.next_cursor, answer.total, answer.total_is_exact)


def _pairs(values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}:{value}" for name, value in values.items())
