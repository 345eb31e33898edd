"""What may be asked about dead letters."""

from datetime import datetime
from typing import TypedDict

from tideq.client.calls.base import Call, answers, get, instant, params, post, segment, then
from tideq.client.calls.listing import LIST_SECONDS
from tideq.client.calls.tasks import LONG_SECONDS, revival
from tideq.client.models.dead_letters import DeadLetter, DeadLetterPage, Pattern, Patterns, Replayed
from tideq.client.models.pages import Page
from tideq.client.models.tasks import Retried

DLQ = "/api/v1/dlq"


class DeadLetterFilter(TypedDict, total=False):
    """Which dead letters: all that is given must hold."""

    task_type: str | None
    reason: str | None
    """`retries_exhausted`, `poison`, `never_started`, `discarded`."""
    pattern: str | None
    """Died this way; `patterns()` lists them."""
    before: datetime | None
    """Died before this instant."""


def dead_letters(
    wanted: DeadLetterFilter, page_size: int, cursor: str | None, *, count: bool
) -> Call[Page[DeadLetter]]:
    chosen = params(
        task_type=wanted.get("task_type"),
        reason=wanted.get("reason"),
        pattern=wanted.get("pattern"),
        before=wanted.get("before"),
        limit=page_size,
        cursor=cursor,
        count=True if count else None,
    )
    return get(DLQ, then(answers(DeadLetterPage), _page), chosen, waits_seconds=LIST_SECONDS)


def patterns() -> Call[tuple[Pattern, ...]]:
    return get(f"{DLQ}/patterns", then(answers(Patterns), lambda answer: answer.patterns), waits_seconds=LIST_SECONDS)


def replay(task_id: str, *, reset_retry_count: bool, new_priority: str | None) -> Call[Retried]:
    return revival(f"{DLQ}/{segment('task_id', task_id)}/replay", task_id, reset_retry_count, new_priority)


def replay_all(
    wanted: DeadLetterFilter, *, reset_retry_count: bool, new_priority: str | None, dry_run: bool
) -> Call[Replayed]:
    """Not repeated once begun: the counts would tell only of the rest."""
    before = wanted.get("before")
    chosen = {**wanted, "before": None if before is None else instant(before)}
    fields = {
        "filter": {name: value for name, value in chosen.items() if value is not None},
        "reset_retry_count": reset_retry_count,
        "new_priority": new_priority,
        "dry_run": dry_run,
    }
    return post(f"{DLQ}/replay", answers(Replayed), fields, waits_seconds=LONG_SECONDS, is_repeatable=dry_run)


def _page(answer: DeadLetterPage) -> Page[DeadLetter]:
    return Page(answer.tasks, answer.next_cursor, answer.total)
