"""`tideq dlq`: lists, groups and replays dead letters."""

import itertools
from datetime import UTC, datetime
from typing import Annotated

import cyclopts

from tideq.cli.output import Cell, confirm, show, show_one
from tideq.cli.session import FAILED, LOCAL, OK, USAGE, Service, Several, Switch, open_client, stop
from tideq.cli.tasks import for_each, last_error
from tideq.cli.time_args import moment
from tideq.client.calls.dlq import DeadLetterFilter

COLUMNS: dict[str, Cell] = {
    "task": "task_id",
    "type": "task_type",
    "reason": "reason",
    "died": "died_at",
    "attempts": "attempt",
    "pattern": "pattern",
    "error": last_error,
}
PATTERNS = {
    "pattern": "pattern",
    "count": "count",
    "type": "task_type",
    "reason": "reason",
    "retriable": "retriable_count",
    "new": "is_new",
    "last seen": "last_seen",
    "message": "message",
}


def show_list(
    *,
    type: str | None = None,  # noqa: A002 - it is the option's name
    reason: str | None = None,
    pattern: str | None = None,
    before: str | None = None,
    limit: int = 50,
    service: Service = LOCAL,
) -> None:
    """Dead letters, the newest first.

    Parameters
    ----------
    type
        Only this task type.
    reason
        Only this reason: retries_exhausted, poison, never_started, discarded.
    pattern
        Only this error pattern; see `tideq dlq patterns`.
    before
        Only tasks that died longer ago than this (24h), or before this instant.
    limit
        The most to show.
    """
    with open_client(service) as client:
        found = client.dlq.list(page_size=max(1, min(limit, 500)), **_filter(type, reason, pattern, before))
        show(itertools.islice(found, limit), COLUMNS, service.output)


def patterns(*, service: Service = LOCAL) -> None:
    """Dead letters grouped by type, reason and error, the most frequent first."""
    with open_client(service) as client:
        show(client.dlq.patterns(), PATTERNS, service.output)


def replay(
    task_ids: Annotated[list[str] | None, Several] = None,
    *,
    type: str | None = None,  # noqa: A002 - it is the option's name
    reason: str | None = None,
    pattern: str | None = None,
    before: str | None = None,
    every: Annotated[bool, cyclopts.Parameter(name="--all", negative=())] = False,
    priority: str | None = None,
    keep_retries: Annotated[bool, Switch] = False,
    dry_run: Annotated[bool, Switch] = False,
    yes: Annotated[bool, cyclopts.Parameter(alias="-y", negative=())] = False,
    service: Service = LOCAL,
) -> int:
    """Send dead letters back to the queue: the given tasks, or all that meet the conditions.

    Parameters
    ----------
    task_ids
        The tasks to replay; without any, all that meet the conditions.
    type
        Only this task type.
    reason
        Only this reason.
    pattern
        Only this error pattern; see `tideq dlq patterns`.
    before
        Only tasks that died longer ago than this (24h), or before this instant.
    every
        All dead letters, without a condition.
    priority
        A new priority; without it, the task keeps its own.
    keep_retries
        Keep the used retry budget instead of resetting it.
    dry_run
        Only count the dead letters that match.
    yes
        Do not prompt for confirmation.
    """
    with open_client(service) as client:
        conditions = _filter(type, reason, pattern, before)
        is_filtered = any(conditions.values()) or every
        if bool(task_ids) == is_filtered:
            stop("give task ids, or a condition, or --all", USAGE)
        if task_ids:
            return for_each(
                task_ids,
                lambda task_id: client.dlq.replay(task_id, reset_retry_count=not keep_retries, new_priority=priority),
                service.output,
            )
        preview = client.dlq.replay_all(dry_run=True, **conditions)
        if dry_run:
            show_one(preview, service.output)
            return OK
        if not yes and not confirm(f"Replay {preview.matched} dead letters?"):
            return FAILED
        done = client.dlq.replay_all(reset_retry_count=not keep_retries, new_priority=priority, **conditions)
        show_one(done, service.output)
        return FAILED if done.refused else OK


def _filter(task_type: str | None, reason: str | None, pattern: str | None, before: str | None) -> DeadLetterFilter:
    return DeadLetterFilter(
        task_type=task_type,
        reason=reason,
        pattern=pattern,
        before=None if before is None else moment(before, datetime.now(UTC)),
    )
