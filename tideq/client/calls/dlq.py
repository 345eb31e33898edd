"""Calls for dead letters."""

from datetime import datetime
from typing import TypedDict

from tideq.client.calls.base import Call, answers, get, instant, params, post, segment, then
from tideq.client.calls.listing import LIST_SECONDS
from tideq.client.calls.tasks import LONG_SECONDS, requeue
from tideq.client.models.dead_letters import DeadLetter, DeadLetterPage, Pattern, Patterns, Replayed
from tideq.client.models.tasks import Page, Retried

DLQ = "/api/v1/dlq"


class DeadLetterFilter(TypedDict, total=False):
    """Filters for dead letters; all must match."""

    task_type: str | None
    reason: str | None
    """`retries_exhausted`, `poison`, `never_started`, `discarded`."""
    pattern: str | None
    """An id of `patterns()`."""
    before: datetime | None
    """Became dead letters before this instant."""


def dead_letters(
    filters: DeadLetterFilter, page_size: int, cursor: str | None, *, count: bool
) -> Call[Page[DeadLetter]]:
    query = params(
        task_type=filters.get("task_type"),
        reason=filters.get("reason"),
        pattern=filters.get("pattern"),
        before=filters.get("before"),
        limit=page_size,
        cursor=cursor,
        count=True if count else None,
    )
    return get(DLQ, then(answers(DeadLetterPage), _page), query, waits_seconds=LIST_SECONDS)


def patterns() -> Call[tuple[Pattern, ...]]:
    return get(f"{DLQ}/patterns", then(answers(Patterns), lambda reply: reply.patterns), waits_seconds=LIST_SECONDS)


def replay(task_id: str, *, reset_retry_count: bool, new_priority: str | None) -> Call[Retried]:
    return requeue(f"{DLQ}/{segment('task_id', task_id)}/replay", task_id, reset_retry_count, new_priority)


def replay_all(
    filters: DeadLetterFilter, *, reset_retry_count: bool, new_priority: str | None, dry_run: bool
) -> Call[Replayed]:
    """Not repeatable: a second response would count only the remaining dead letters."""
    before = filters.get("before")
    query = {**filters, "before": None if before is None else instant(before)}
    fields = {
        "filter": {name: value for name, value in query.items() if value is not None},
        "reset_retry_count": reset_retry_count,
        "new_priority": new_priority,
        "dry_run": dry_run,
    }
    return post(f"{DLQ}/replay", answers(Replayed), fields, waits_seconds=LONG_SECONDS, is_repeatable=dry_run)


def _page(reply: DeadLetterPage) -> Page[DeadLetter]:
    return Page(reply.tasks, reply.next_cursor, reply.total)
