"""`tideq dlq`: what was given up, how it died, and sending it back."""

import itertools
from datetime import UTC, datetime
from typing import Annotated

import cyclopts

from tideq.cli.moments import moment
from tideq.cli.output import Cell, agrees, show, show_one
from tideq.cli.session import FAILED, LOCAL, OK, USAGE, Service, Several, Switch, calling, stop
from tideq.cli.tasks import for_each, last_error
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
    """Dead letters, the latest death first.

    Parameters
    ----------
    type
        Of this task type.
    reason
        Given up for this: retries_exhausted, poison, never_started, discarded.
    pattern
        Died this way; see `tideq dlq patterns`.
    before
        Died longer ago than this (24h), or before this instant.
    limit
        The most to show.
    """
    with calling(service) as client:
        found = client.dlq.list(page_size=max(1, min(limit, 500)), **_wanted(type, reason, pattern, before))
        show(itertools.islice(found, limit), COLUMNS, service.output)


def patterns(*, service: Service = LOCAL) -> None:
    """What is dead by type, reason and error, the most frequent first."""
    with calling(service) as client:
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
    """Send dead letters back to the queue: those named, or all that match.

    Parameters
    ----------
    task_ids
        These; without any, those that match the conditions.
    type
        Of this task type.
    reason
        Given up for this.
    pattern
        Died this way; see `tideq dlq patterns`.
    before
        Died longer ago than this (24h), or before this instant.
    every
        All of them, where no other condition is given.
    priority
        Another level than before.
    keep_retries
        Do not begin with fresh budgets.
    dry_run
        Only tell how many match.
    yes
        Do not ask.
    """
    with calling(service) as client:
        wanted = _wanted(type, reason, pattern, before)
        is_filtered = any(wanted.values()) or every
        if bool(task_ids) == is_filtered:
            stop("name tasks, or give a condition or --all", USAGE)
        if task_ids:
            return for_each(
                task_ids,
                lambda task_id: client.dlq.replay(task_id, reset_retry_count=not keep_retries, new_priority=priority),
                service.output,
            )
        preview = client.dlq.replay_all(dry_run=True, **wanted)
        if dry_run:
            show_one(preview, service.output)
            return OK
        if not yes and not agrees(f"Send {preview.matched} dead letters back?"):
            return FAILED
        done = client.dlq.replay_all(reset_retry_count=not keep_retries, new_priority=priority, **wanted)
        show_one(done, service.output)
        return FAILED if done.refused else OK


def _wanted(task_type: str | None, reason: str | None, pattern: str | None, before: str | None) -> DeadLetterFilter:
    return DeadLetterFilter(
        task_type=task_type,
        reason=reason,
        pattern=pattern,
        before=None if before is None else moment(before, datetime.now(UTC)),
    )
