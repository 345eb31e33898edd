"""`tideq bench`: measures throughput and latency of a service, also by queue depth, payload size and workers."""

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
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tideq.cli.benchmark.benched_service import BenchedService, temporary_service
from tideq.cli.benchmark.cleanup import clear, cleared
from tideq.cli.benchmark.figures import Machine, Run, as_json, bottlenecks, read_run, show_run
from tideq.cli.benchmark.measures import MEASURES, Steps
from tideq.cli.benchmark.plan import Plan, checked, quantities, quantity
from tideq.cli.benchmark.processes import GaveUp, ProcessGroup
from tideq.cli.output import confirm, has_colours, note
from tideq.cli.session import FAILED, LOCAL, NOT_ALLOWED, OK, USAGE, Service, Switch, open_client, split, stop
from tideq.client import CannotConnect

SECOND_LOOK_SECONDS = 0.5
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
    compare: Path | None = None,
    up: Annotated[bool, Switch] = False,
    clean: Annotated[bool, Switch] = False,
    yes: Annotated[bool, cyclopts.Parameter(alias="-y", negative=())] = False,
    service: Service = LOCAL,
) -> int:
    """Submit tasks of a type of its own, run them with workers of its own, and remove them again.

    With default options a run takes about half a minute. It needs an admin's key, and prompts for confirmation if the
    queue has other work. The figures include this machine, the network and the service's store: compare only runs on
    one quiet machine.

    Parameters
    ----------
    measure
        The measurements: enqueue,process,latency,depth,payload,workers.
    tasks
        Tasks of a step: 10k, 1M. Steps of a sweep use a quarter.
    workers
        Worker processes; their handler does nothing.
    worker_counts
        The numbers of worker processes to compare.
    clients
        Processes that submit tasks.
    connections
        Concurrent submissions, over all clients.
    batch
        Tasks in one call, where tasks are submitted in batches.
    rate
        Tasks a second at which latency is measured.
    seconds
        How long latency is measured.
    depth
        Numbers of waiting tasks at which to measure: 1k,10k,100k,1M. A million takes minutes.
    payload
        Bytes of a task's parameters: 0.1k,1k,10k,100k.
    json
        Write all results to this file.
    compare
        A file written by --json: show how many times better this run is.
    up
        Start a service for this run alone, and remove it with its data afterwards.
    clean
        Measure nothing; remove the tasks of runs that were killed.
    yes
        Do not prompt, although the queue has other work.
    """
    signal.signal(signal.SIGTERM, _leave)
    if json and not json.absolute().parent.is_dir():
        stop(f"{json}: its folder does not exist", USAGE)
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
    with _started(service, up=up) as service, open_client(service) as client:
        benched = BenchedService(client, service.target().api_key)
        _check(benched, is_confirmed=yes or up or clean)
        if clean:
            return _clean(benched, plan)
        run = _run(benched, plan, is_temporary=up)
    if json:
        try:
            json.write_bytes(as_json(run))
        except OSError as error:
            stop(f"{json}: {error.strerror}", FAILED)
    show_run(run, before, service.output)
    return OK


@contextlib.contextmanager
def _started(service: Service, *, up: bool) -> Generator[Service]:
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


def _check(benched: BenchedService, *, is_confirmed: bool) -> None:
    """Ends the command where a run is impossible, or would disturb other work without confirmation."""
    try:
        role = benched.whoami().role
    except CannotConnect as error:
        raise CannotConnect(f"{error} `tideq bench --up` starts a service for the run.") from error
    if role != "admin":
        stop(f"this key has the role {role}; a benchmark needs the role admin", NOT_ALLOWED)
    if any(limit.paused for limit in benched.limits()):
        stop("the queue is paused; resume it with `tideq queue resume`", FAILED)
    if is_confirmed or not (others := _other_work(benched)):
        return
    if not confirm(f"The queue {others}. Run the benchmark anyway?"):
        stop("no benchmark was run", FAILED)


def _other_work(benched: BenchedService) -> str:
    """Empty for an idle queue. Tasks finished lately may be of an earlier run, so a second look must find more."""
    first = benched.other_tasks()
    if first.live:
        return f"has {first.live:,} other tasks"
    if not first.finished_lately:
        return ""
    time.sleep(SECOND_LOOK_SECONDS)
    second = benched.other_tasks()
    return "is in use" if second.live or second.finished_lately > first.finished_lately else ""


def _run(benched: BenchedService, plan: Plan, *, is_temporary: bool) -> Run:
    at, identity = datetime.now(UTC), benched.whoami()
    with _bars() as bars, contextlib.nullcontext() if is_temporary else cleared(benched, plan, bars):
        processes = ProcessGroup(benched.target, plan.clients, plan.max_workers, benched.check)
        try:
            processes.wait_until_ready()
            steps = Steps(benched, plan, processes, bars)
            figures = [each for kind in MEASURES if kind in plan.kinds for each in MEASURES[kind](steps)]
            left = benched.backlog()
        finally:
            processes.end()
    return Run(
        at=at.isoformat(timespec="seconds"),
        tideq=version("tideq"),
        service_version=identity.version,
        url=benched.url,
        task_type=benched.task_type,
        machine=Machine(cpus=os.cpu_count() or 1, system=platform.platform(), python=platform.python_version()),
        plan=plan,
        figures=tuple(figures),
        submitted=steps.submitted,
        processed=steps.processed,
        left=left,
        notes=(*_limits(benched), *steps.notes, *bottlenecks(figures, benched.url)),
    )


def _limits(benched: BenchedService) -> list[str]:
    return [
        f"limited: tasks a second {limit.tasks_per_second or 'any'}, at once {limit.max_executing or 'any'}"
        for limit in benched.limits()
        if limit.tasks_per_second or limit.max_executing
    ]


def _clean(benched: BenchedService, plan: Plan) -> int:
    leftovers = benched.other_tasks().leftovers
    with _bars() as bars:
        for task_type in leftovers:
            clear(BenchedService(benched.client, benched.target.api_key, task_type), plan, bars)
    note(f"removed the tasks of {len(leftovers)} runs" if leftovers else "no run has left tasks")
    return OK


def _bars() -> Progress:
    """A bar for each step, on a terminal only and never on standard output."""
    console = Console(stderr=True, no_color=not has_colours(sys.stderr))
    columns = (TextColumn("{task.description:<44}"), BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(TERMINATED)
