"""`tideq tasks`: look at tasks, call them off, run them again, watch them."""

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, cast

from tideq.cli.moments import moment
from tideq.cli.output import Cell, Format, note, say, show, show_one, table
from tideq.cli.session import FAILED, LOCAL, OK, Ids, Service, Several, Switch, calling, exit_code, pairs, split
from tideq.client import Cancelled, Client, Conflict, NotFound, Retried, Task, Transition
from tideq.client.calls.listing import TaskFilter
from tideq.client.models.tasks import DONE, Status


def last_error(task: Task) -> str:
    """The message, and of how many it is the last: lists have one."""
    message = task.error.message if task.error else ""
    return f"last of {task.error_count}: {message}" if task.error_count > 1 else message


COLUMNS: dict[str, Cell] = {
    "task": "task_id",
    "type": "task_type",
    "status": "status",
    "reason": "reason",
    "priority": "priority",
    "attempt": "attempt",
    "created": "created_at",
    "worker": "assigned_worker_id",
    "error": last_error,
}
FIELDS = [
    "task_id",
    "task_type",
    "status",
    "reason",
    "priority",
    "parameters",
    "result",
    "error",
    "errors",
    "error_count",
    "progress",
    "tags",
    "required_capabilities",
    "attempt",
    "retry_count",
    "max_retries",
    "timeout_seconds",
    "created_at",
    "visible_at",
    "started_at",
    "completed_at",
    "assigned_worker_id",
    "queue_position",
    "estimated_wait_seconds",
    "trace_id",
]
CHANGES = {"at": "at", "state": "state", "reason": "reason", "attempt": "attempt", "worker": "worker_id"}


def show_list(
    *,
    status: Annotated[list[str] | None, Several] = None,
    type: str | None = None,  # noqa: A002 - it is the option's name
    priority: str | None = None,
    tag: Annotated[list[str] | None, Several] = None,
    worker: str | None = None,
    error: str | None = None,
    trace: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: int = 50,
    service: Service = LOCAL,
) -> None:
    """Tasks by any conditions together, newest first.

    Parameters
    ----------
    status
        In any of these: queued,assigned,executing,completed,failed,cancelled,dead_letter.
    type
        Of this task type.
    priority
        Of this level.
    tag
        name=value; each must hold.
    worker
        Whose the current or last attempt is.
    error
        Words its errors hold, all of them.
    trace
        Of this trace.
    since
        Created no longer ago than this (24h), or not before this instant.
    until
        Created longer ago than this, or before this instant.
    limit
        The most to show.
    """
    now = datetime.now(UTC)
    with calling(service) as client:
        wanted = TaskFilter(
            status=cast("Sequence[Status]", split(status)),
            task_type=type,
            priority=priority,
            tags=pairs(tag),
            worker_id=worker,
            error=error,
            trace_id=trace,
            created_after=None if since is None else moment(since, now),
            created_before=None if until is None else moment(until, now),
        )
        found = client.list(page_size=max(1, min(limit, 500)), **wanted)
        show(itertools.islice(found, limit), COLUMNS, service.output)


def get(task_id: str, *, history: Annotated[bool, Switch] = False, service: Service = LOCAL) -> None:
    """One task as it is now.

    Parameters
    ----------
    task_id
        Its id.
    history
        With every transition it made.
    """
    with calling(service) as client:
        task = client.get(task_id, history=history)
        show_one(task, service.output, FIELDS)
        if history and service.output == "table":
            show(task.state_history, CHANGES, "table")


def explain(task_id: str, *, service: Service = LOCAL) -> None:
    """Why a task is where it is, and what holds it back."""
    with calling(service) as client:
        show_one(client.explain(task_id), service.output)


def cancel(task_ids: Ids, *, service: Service = LOCAL) -> int:
    """Call tasks off; their workers are told. Fails where any could not be.

    Parameters
    ----------
    task_ids
        One or more.
    """
    with calling(service) as client:
        return for_each(task_ids, client.cancel, service.output)


def retry(
    task_ids: Ids,
    *,
    priority: str | None = None,
    keep_retries: Annotated[bool, Switch] = False,
    service: Service = LOCAL,
) -> int:
    """Run failed, dead or cancelled tasks again. Fails where any could not be.

    Parameters
    ----------
    task_ids
        One or more.
    priority
        Another level than before.
    keep_retries
        Do not begin with fresh budgets.
    """
    with calling(service) as client:
        return for_each(
            task_ids,
            lambda task_id: client.retry(task_id, reset_retry_count=not keep_retries, new_priority=priority),
            service.output,
        )


def watch(task_id: str, *, wait_seconds: float | None = None, service: Service = LOCAL) -> int:
    """Show what happens to a task until it is finished. The exit code is its outcome: 0 where it completed, else 1.

    Parameters
    ----------
    task_id
        Its id.
    wait_seconds
        Watch no longer than this.
    """
    with calling(service) as client:
        if wait_seconds is None and service.output != "json":
            _follow(client, task_id, service.output)
        task = client.wait(task_id, wait_seconds)
        return outcome(task) if service.output == "jsonl" else show_outcome(task, service.output)


def show_outcome(task: Task, style: Format) -> int:
    """What became of a task somebody waited for, and the exit code that says so."""
    show_one(task, style, ("task_id", "status", "reason", "result", "error"))
    return outcome(task)


def outcome(task: Task) -> int:
    if not task.is_done:
        note(f"task {task.task_id} is still {task.status}")
    return OK if task.has_succeeded else FAILED


def for_each(task_ids: Sequence[str], act: Callable[[str], Cancelled | Retried], style: Format) -> int:
    """What cannot be done to one is told, and does not keep it from the others."""
    done: list[Cancelled | Retried] = []
    codes: list[int] = []
    for task_id in task_ids:
        try:
            done.append(act(task_id))
        except (Conflict, NotFound) as error:
            note(f"error: {error}")
            codes.append(exit_code(error))
    show(done, {"task": "task_id", "status": "status"}, style)
    return codes[0] if codes else OK


def _follow(client: Client, task_id: str, style: Format) -> None:
    """From how it is now until it is finished."""
    with client.events(task_id=task_id) as events:
        if client.get(task_id).is_done:
            return
        for event in events:
            if isinstance(event, Transition):
                _tell(event, style)
                if event.status in DONE:
                    return
            elif client.get(task_id).is_done:
                return


def _tell(event: Transition, style: Format) -> None:
    if style == "jsonl":
        show([event], {}, style)
    else:
        (line,) = table([[event.at.strftime("%H:%M:%S"), event.status, event.reason, event.worker_id or ""]], [])
        say(line)
