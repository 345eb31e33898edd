"""Removes a run from a service: completes the tasks it left in the queue, then deletes its finished tasks."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.progress import Progress

from tideq.cli.benchmark.benched_service import BenchedService
from tideq.cli.benchmark.measures import Steps
from tideq.cli.benchmark.plan import Plan
from tideq.cli.benchmark.processes import ProcessGroup
from tideq.cli.output import note
from tideq.client import TideqError

AGAIN = "`tideq bench --clean` removes it"


@contextmanager
def cleared(service: BenchedService, plan: Plan, bars: Progress) -> Generator[None]:
    """Cleans up after the block, also if it fails. An error of the clean-up is printed and hides no other error."""
    try:
        yield
    except KeyboardInterrupt:
        note("stopping and removing the run's tasks; press Ctrl-C again to leave them in the queue")
        raise
    finally:
        try:
            clear(service, plan, bars)
        except TideqError as error:
            note(f"tasks of type {service.task_type} may be left in the queue ({error}): {AGAIN}")
        except KeyboardInterrupt:
            note(f"tasks of type {service.task_type} are left in the queue: {AGAIN}")
            raise


def clear(service: BenchedService, plan: Plan, bars: Progress) -> None:
    """Repeats until nothing is left: a submission sent before its process was killed may arrive late."""
    is_clear = False
    while not is_clear:
        if service.backlog():
            _complete_all(service, plan, bars)
        if service.whoami().has_history:
            service.delete_finished()
        is_clear = not service.backlog()


def _complete_all(service: BenchedService, plan: Plan, bars: Progress) -> None:
    """Starts workers of its own, because those of the run may be in any state."""
    processes = ProcessGroup(service.target, 0, plan.workers, service.check)
    try:
        processes.wait_until_ready()
        steps = Steps(service, plan, processes, bars)
        while left := service.backlog():
            steps.work("", "clearing the queue", left, plan.workers)
    finally:
        processes.end()
