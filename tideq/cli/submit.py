"""`tideq submit`: submits a task, or one for each line of a file."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import cyclopts
import msgspec

from tideq.cli.output import show, show_one, with_progress_bar
from tideq.cli.session import LOCAL, Service, Several, Switch, open_client, pairs, split
from tideq.cli.tasks import show_outcome
from tideq.cli.time_args import duration, moment
from tideq.client import NewTask
from tideq.client.encoding import decode
from tideq.client.models.tasks import Durability, TaskOptions

COLUMNS = {"task": "task_id", "status": "status", "position": "queue_position", "visible at": "visible_at"}


def submit(
    task_type: str,
    parameters: Annotated[str, cyclopts.Parameter(allow_leading_hyphen=True)] = "{}",
    *,
    lines: Annotated[Path | None, cyclopts.Parameter(allow_leading_hyphen=True)] = None,
    priority: str | None = None,
    delay: str | None = None,
    run_at: str | None = None,
    timeout: str | None = None,
    max_retries: int | None = None,
    capability: Annotated[list[str] | None, Several] = None,
    tag: Annotated[list[str] | None, Several] = None,
    key: str | None = None,
    durability: Durability = "store",
    wait: Annotated[bool, Switch] = False,
    wait_seconds: float | None = None,
    service: Service = LOCAL,
) -> int:
    """Submit a task. With --wait the exit code is its outcome: 0 if it completed, else 1.

    Parameters
    ----------
    task_type
        The type of the task.
    parameters
        A JSON object; `@FILE` or `-` reads it from a file or from standard input.
    lines
        A file with a JSON object on each line, `-` for standard input: each line becomes a task.
    priority
        high, medium, low, or another level of the service.
    delay
        Run it no sooner than after this time: 90s, 1h30m.
    run_at
        Run it no sooner than at this instant: 2026-03-02T09:15:00Z.
    timeout
        How long one execution may take.
    max_retries
        How often a failed task is retried.
    capability
        A capability that a worker must have to claim it.
    tag
        name=value, to search for it.
    key
        Idempotency key: a second submission with the same key within 24 h returns the first task.
    durability
        Where the task must be stored before the service answers.
    wait
        Wait until it is finished, and show its result.
    wait_seconds
        Wait no longer than this.
    """
    with open_client(service) as client:
        options = TaskOptions(
            priority=priority,
            delay_seconds=None if delay is None else duration(delay).total_seconds(),
            run_at=None if run_at is None else moment(run_at, datetime.now(UTC)),
            timeout_seconds=None if timeout is None else duration(timeout).total_seconds(),
            max_retries=max_retries,
            required_capabilities=split(capability),
            tags=pairs(tag),
            durability=durability,
        )
        if lines is not None:
            tasks = (
                NewTask(task_type, each, **options) for each in with_progress_bar(list(_lines(lines)), "submitting")
            )
            show(client.submit_many(tasks, idempotency_key=key), COLUMNS, service.output)
            return 0
        options["idempotency_key"] = key
        submitted = client.submit(task_type, _parameters(parameters), **options)
        if wait or wait_seconds is not None:
            return show_outcome(client.wait(submitted.task_id, wait_seconds), service.output)
        show_one(submitted, service.output)
    return 0


def _parameters(text: str) -> Any:
    if text == "-":
        return _object(sys.stdin.read(), "standard input")
    if text.startswith("@"):
        return _object(_read(Path(text[1:])), text[1:])
    return _object(text, text)


def _lines(path: Path) -> Iterator[Any]:
    text = sys.stdin.read() if str(path) == "-" else _read(path)
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield _object(line, f"line {number}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error


def _object(text: str, place: str) -> Any:
    """Raises ValueError where the text is not a JSON object; numbers keep all their digits."""
    try:
        found = decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise ValueError(f"{place} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{place} is not a JSON object")
    return found  # pyright: ignore[reportUnknownVariableType]
