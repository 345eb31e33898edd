"""Leaving a service as it was: what a run left in the queue is done, and what was done is forgotten."""

from collections.abc import Generator
from contextlib import contextmanager

from tideq.cli.benchmark.bars import Bars
from tideq.cli.benchmark.benched_service import BenchedService
from tideq.cli.benchmark.plan import Plan
from tideq.cli.benchmark.steps import Steps
from tideq.cli.benchmark.processes import ProcessGroup
from tideq.cli.output import note
from tideq.client import TideqError

AGAIN = "`tideq bench --clean` removes it"


@contextmanager
def cleared(place: BenchedService, plan: Plan, bars: Bars) -> Generator[None]:
    """However it ends. What stands in the way of that is told, and never hides how the run ended."""
    try:
        yield
    except KeyboardInterrupt:
        note("stopping, and clearing away what is left; Ctrl-C once more leaves it there")
        raise
    finally:
        _clear_and_tell(place, plan, bars)


def clear(place: BenchedService, plan: Plan, bars: Bars) -> None:
    """Until nothing is left: what was on its way when a process was killed may arrive meanwhile."""
    is_clear = False
    while not is_clear:
        if place.backlog():
            _do_all(place, plan, bars)
        if place.whoami().has_history:
            place.forget_finished()
        is_clear = not place.backlog()


def _do_all(place: BenchedService, plan: Plan, bars: Bars) -> None:
    """With workers of its own: those of the run may be anywhere."""
    team = ProcessGroup(place.target, 0, plan.workers, place.check)
    try:
        team.ready()
        Steps(place, plan, team, bars).clear(place.backlog, "clearing the queue")
    finally:
        team.end()


def _clear_and_tell(place: BenchedService, plan: Plan, bars: Bars) -> None:
    try:
        clear(place, plan, bars)
    except TideqError as error:
        note(f"tasks of type {place.task_type} may be left in the queue ({error}): {AGAIN}")
    except KeyboardInterrupt:
        note(f"tasks of type {place.task_type} are left in the queue: {AGAIN}")
        raise
