"""`tideq bench`: how much a service does, how soon, and how that changes with depth, size and workers."""

import contextlib
import os
import platform
import signal
import sys
import time
from collections.abc import Generator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import cyclopts

from tideq.cli.benchmark.bars import bars
from tideq.cli.benchmark.cleanup import clear, cleared
from tideq.cli.benchmark.findings import Machine, Run, as_json, read_run
from tideq.cli.benchmark.measures import MEASURES
from tideq.cli.benchmark.page import page
from tideq.cli.benchmark.benched_service import BenchedService
from tideq.cli.benchmark.plan import Plan, checked, quantities, quantity
from tideq.cli.benchmark.steps import Steps
from tideq.cli.benchmark.tables import show_run
from tideq.cli.benchmark.processes import GaveUp, ProcessGroup
from tideq.cli.benchmark.temporary import temporary_service
from tideq.cli.benchmark.words import limits_found
from tideq.cli.output import confirm, note
from tideq.cli.session import FAILED, LOCAL, NOT_ALLOWED, OK, USAGE, Service, Switch, open_client, split, stop
from tideq.client import CannotConnect

LOOK_SECONDS = 0.5
TERMINATED = 128 + signal.SIGTERM


def bench(
    *,
    measure: str = "enqueue,process,latency,depth,payload,workers",
    tasks: str = "10k",
    workers: int = 1,
    worker_counts: str = "1,2",
    clients: int = 1,
    connections: int = 16,
    batch: int = 500,
    rate: float = 200,
    seconds: float = 5,
    depth: str = "1k,10k",
    payload: str = "0.1k,1k,10k,100k",
    json: Path | None = None,
    html: Path | None = None,
    compare: Path | None = None,
    up: Annotated[bool, Switch] = False,
    clean: Annotated[bool, Switch] = False,
    yes: Annotated[bool, cyclopts.Parameter(alias="-y", negative=())] = False,
    service: Service = LOCAL,
) -> int:
    """Load a service with tasks of a type of its own, do them with workers of its own, and take all of it away again.

    As it is it takes about half a minute. It needs an admin's key, and asks before it disturbs other work. Figures are
    of everything between this machine and the service's store: compare those of one machine, taken while it is quiet.

    Parameters
    ----------
    measure
        What: enqueue,process,latency,depth,payload,workers.
    tasks
        How many tasks a step takes: 10k, 1M. Steps of a sweep take a quarter.
    workers
        Worker processes; their handler does nothing.
    worker_counts
        The numbers of worker processes to compare.
    clients
        Processes that hand in tasks.
    connections
        How many submissions they have under way together.
    batch
        Tasks in one call, where many are handed in at once.
    rate
        Tasks a second at which latency is measured.
    seconds
        For how long it is measured.
    depth
        How many tasks wait while it is measured: 1k,10k,100k,1M. A million takes minutes.
    payload
        Bytes of a task's parameters: 0.1k,1k,10k,100k.
    json
        Write everything that was found to this file.
    html
        Write a page with charts to this file.
    compare
        A file that --json wrote: show how many times better this run is.
    up
        Start a service for this run alone, and remove it with its data afterwards.
    clean
        Measure nothing: remove what runs left that were killed.
    yes
        Do not ask, although the queue has other work.
    """
    signal.signal(signal.SIGTERM, _leave)
    for path in (json, html):
        if path is not None and not path.absolute().parent.is_dir():
            stop(f"{path}: there is no such folder", USAGE)
    try:
        plan = checked(
            Plan(
                kinds=tuple(split([measure])),
                tasks=quantity("--tasks", tasks),
                connections=connections,
                batch=batch,
                clients=clients,
                workers=workers,
                payload_bytes=100,
                rate=rate,
                seconds=seconds,
                depths=quantities("--depth", split([depth])),
                payloads=quantities("--payload", split([payload])),
                worker_counts=quantities("--worker-counts", split([worker_counts])),
            )
        )
        before = read_run(compare) if compare else None
    except ValueError as error:
        stop(str(error), USAGE)
    with _made(service, up=up) as service, open_client(service) as client:
        place = BenchedService(client, service.target().api_key)
        _check(place, is_wanted=yes or up or clean)
        if clean:
            return _clean(place, plan)
        run = _run(place, plan, is_temporary=up)
    if json:
        _write(json, as_json(run))
    if html:
        _write(html, page(run, before).encode())
    show_run(run, before, service.output)
    return OK


@contextlib.contextmanager
def _made(service: Service, *, up: bool) -> Generator[Service]:
    if not up:
        yield service
        return
    note("starting a service for this run")
    with contextlib.ExitStack() as running:
        try:
            url = running.enter_context(temporary_service())
        except (GaveUp, OSError) as error:
            stop(str(error), FAILED)
        yield Service(url=url, output=service.output, no_color=service.no_color)


def _check(place: BenchedService, *, is_wanted: bool) -> None:
    """Whether a run can be made at all, and whether it would be in somebody's way."""
    try:
        role = place.whoami().role
    except CannotConnect as error:
        raise CannotConnect(f"{error} `tideq bench --up` starts one for the run.") from error
    if role != "admin":
        stop(f"a benchmark submits, works and cleans up: it takes an admin's key, and this is a {role}'s", NOT_ALLOWED)
    if any(limit.paused for limit in place.limits()):
        stop("the queue is paused: `tideq queue resume` first", FAILED)
    if not is_wanted and (others := _other_work(place)) and not confirm(f"The queue {others}. Load it all the same?"):
        stop("nothing was done", FAILED)


def _other_work(place: BenchedService) -> str:
    """In words. Tasks that were finished lately may be of an earlier run: then no more come while one looks."""
    first = place.others()
    if first.live:
        return f"holds {first.live:,} tasks of others"
    if not first.finished_lately:
        return ""
    time.sleep(LOOK_SECONDS)
    second = place.others()
    return "is in use" if second.live or second.finished_lately > first.finished_lately else ""


def _run(place: BenchedService, plan: Plan, *, is_temporary: bool) -> Run:
    at, notes, who = datetime.now(UTC), _limits(place), place.whoami()
    with bars() as shown, contextlib.nullcontext() if is_temporary else cleared(place, plan, shown):
        team = ProcessGroup(place.target, plan.clients, plan.max_workers, place.check)
        try:
            team.ready()
            steps = Steps(place, plan, team, shown)
            figures = [each for kind in MEASURES if kind in plan.kinds for each in MEASURES[kind](steps, notes.append)]
            left = place.backlog()
        finally:
            team.end()
    return Run(
        at=at.isoformat(timespec="seconds"),
        tideq=version("tideq"),
        service_version=who.version,
        url=place.url,
        task_type=place.task_type,
        machine=Machine(cpus=os.cpu_count() or 1, system=platform.platform(), python=platform.python_version()),
        plan=plan,
        figures=tuple(figures),
        submitted=steps.submitted,
        processed=steps.processed,
        left=left,
        notes=(*notes, *limits_found(figures, place.url)),
    )


def _limits(place: BenchedService) -> list[str]:
    return [
        f"limited: tasks a second {limit.tasks_per_second or 'any'}, at once {limit.max_executing or 'any'}"
        for limit in place.limits()
        if limit.tasks_per_second or limit.max_executing
    ]


def _clean(place: BenchedService, plan: Plan) -> int:
    leftovers = place.others().leftovers
    with bars() as shown:
        for task_type in leftovers:
            clear(BenchedService(place.client, place.target.api_key, task_type), plan, shown)
    note(f"removed what {len(leftovers)} runs had left" if leftovers else "no run has left anything")
    return OK


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        stop(f"{path}: {error.strerror}", FAILED)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(TERMINATED)
