"""`tideq parked`: events that history refused, and tasks that the store has set aside as unreadable."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated

import cyclopts
import msgspec

from tideq.cli.exit_codes import FAILED, NOT_FOUND, OK, USAGE, stop
from tideq.cli.history import history_settings, run_command
from tideq.cli.output import Format, print_line, show
from tideq.cli.session import Several, Switch
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.replication.parking import ParkingOfAll, parking_of

COLUMNS = {
    "task": "task_id",
    "events": "event_count",
    "from version": "first_version",
    "parked": "parked_ms",
    "problem": "problem",
}


SET_ASIDE = "set aside: this version cannot read the task's record or definition in the store"


class ParkedRow(msgspec.Struct, frozen=True):
    task_id: str
    event_count: int
    first_version: int
    last_version: int
    parked_ms: int | None
    problem: str


def show_list(*, output: Annotated[Format, cyclopts.Parameter(alias="-o")] = "table") -> None:
    """Tasks with parked events, the earliest first: the number of events, the first version, the problem.

    After them the tasks that the store has set aside because they cannot be read; these have no parked events.

    Parameters
    ----------
    output
        table, json or jsonl.
    """

    async def listed() -> list[ParkedRow]:
        async with _store() as (store, parking):
            parked = [ParkedRow(**task._asdict()) for task in await parking.tasks()]
            return parked + [
                ParkedRow(each, 0, 0, 0, None, SET_ASIDE) for each in await store.engine.insight.unreadable()
            ]

    show(run_command(listed()), COLUMNS, output)


def retry(
    task_ids: Annotated[list[str] | None, Several] = None,
    *,
    every: Annotated[bool, cyclopts.Parameter(name="--all", negative=())] = False,
) -> int:
    """Write the parked events of tasks again; events that fail again stay parked, and the exit code is 1.

    Parameters
    ----------
    task_ids
        The tasks to write.
    every
        All tasks that have parked events.
    """
    if bool(task_ids) == every:
        stop("give task ids, or --all", USAGE)

    async def try_again(parking: ParkingOfAll, task_id: str) -> str | None:
        outcome = await parking.retry(task_id)
        return None if outcome is None else "written" if outcome else "still parked"

    return run_command(_for_each(task_ids, try_again))


def discard(task_ids: Annotated[list[str], Several], *, yes: Annotated[bool, Switch] = False) -> int:
    """Discard the parked events of tasks, for good: history keeps the tasks' last state and lacks these transitions.

    Parameters
    ----------
    task_ids
        The tasks whose events to discard.
    yes
        Confirms it: without this option nothing is done.
    """
    if not yes:
        stop("discarded events cannot be restored; confirm with --yes", USAGE)

    async def discard_one(parking: ParkingOfAll, task_id: str) -> str | None:
        count = await parking.discard(task_id)
        return f"{count} events discarded" if count else None

    return run_command(_for_each(task_ids, discard_one))


async def _for_each(task_ids: list[str] | None, act: Callable[[ParkingOfAll, str], Awaitable[str | None]]) -> int:
    """Prints one line a task; returns the worst outcome as the exit code."""
    code = OK
    async with _parking() as parking:
        for task_id in task_ids or [task.task_id for task in await parking.tasks()]:
            outcome = await act(parking, task_id)
            print_line(f"{task_id}  {outcome or 'has no parked events'}")
            code = max(code, NOT_FOUND if outcome is None else FAILED if outcome == "still parked" else OK)
    return code


@contextlib.asynccontextmanager
async def _parking() -> AsyncGenerator[ParkingOfAll]:
    async with _store() as (_, parking):
        yield parking


@contextlib.asynccontextmanager
async def _store() -> AsyncGenerator[tuple[OpenStore, ParkingOfAll]]:
    settings = history_settings()
    async with open_store(settings.redis_url, settings.queue, settings.history) as store:
        assert store.database is not None
        yield store, parking_of(store.database, store.client, store.engine)
