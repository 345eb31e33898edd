"""What being watched costs: whole lives over HTTP, with logs and traces off, as they are by default, and all of them.

Each variant is a `tideq serve` and a `tideq monitor` of its own on a queue of its own; all are there all the time, and
take turns. A turn begins when nobody has work left from the one before: a monitor that still sends what another variant
made it trace takes a core away, which once looked like the cost of a collector that hangs. Metrics are counted in every
variant. The collector takes what it is sent and looks at nothing. On a machine of two cores clients, service, monitor,
store and collector share them: what a monitor takes, the others lack.
"""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from bench.figures import Figure, Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.http.jobs import Lives, Repeat
from bench.http.processes import ServerProcess, api, load
from bench.http.rates import LIFE_BATCH, SUBMIT, repeat
from bench.server import Servers
from bench.telemetry import away
from bench.telemetry.processes import collector, monitor

OFF, LOGS, TRACES, BOTH, ALL = "off", "logs", "traces, 100 a second", "logs and traces", "every task traced, logs"
HANGING, REFUSING = "the same, collector hangs", "the same, collector is gone"
AWAY = (OFF, HANGING, REFUSING)
MAX_LOSS_PERCENT = 15
COMPARED = (TRACES, BOTH, ALL, HANGING, REFUSING)
NOBODY = "http://127.0.0.1:9"
LOOK_SECONDS, MAX_IDLE_CORES = 0.5, 0.15
"""What so many processes take that have nothing to do, and a little more."""


class Watched(NamedTuple):
    service: ServerProcess
    monitor: ServerProcess


class Round(NamedTuple):
    per_second: float
    api_us: float
    monitor_us: float


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as store, collector() as url, collector("hang") as hanging, ExitStack() as running:
        watched = {
            name: running.enter_context(_watched(store.url, {**settings, "TIDEQ_QUEUE": f"watched-{number}"}))
            for number, (name, settings) in enumerate(_settings(url, hanging).items())
        }
        quiet = Quiet([process for each in watched.values() for process in each])
        lives = {
            name: partial(_measured, quiet, each, Lives(each.service.port, plan.http_tasks // LIFE_BATCH), LIFE_BATCH)
            for name, each in watched.items()
        }
        singles = {
            name: partial(_measured, quiet, each, repeat(each.service, SUBMIT, 1, plan.http_requests), 1)
            for name, each in watched.items()
        }
        for warm_up in lives.values():
            await warm_up()
        found_lives, found_singles = await take_turns(plan.rounds, lives), await take_turns(plan.rounds, singles)
        await quiet.reached()
        gone = await away.measure({name: away.Away(*watched[name]) for name in AWAY}, OFF, plan.away_seconds)
    tables = (
        _table("Being watched: whole lives over HTTP, 100 at a time", found_lives),
        _table("Being watched: submissions one by one", found_singles),
    )
    targets = (*(_target(found_lives, name) for name in COMPARED), *gone.targets)
    return Findings((*tables, *gone.tables), targets)


def _settings(collector_url: str, hanging_url: str) -> dict[str, dict[str, str]]:
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector_url}
    quiet, told = {"TIDEQ_LOG_TRANSITIONS": "off"}, {"TIDEQ_LOG_TRANSITIONS": "on"}
    return {
        OFF: quiet,
        LOGS: told,
        TRACES: {**quiet, **traced},
        BOTH: {**told, **traced},
        ALL: {**told, **traced, "OTEL_TRACES_SAMPLER": "always_on"},
        HANGING: {**told, "OTEL_EXPORTER_OTLP_ENDPOINT": hanging_url, "OTEL_TRACES_SAMPLER": "always_on"},
        REFUSING: {**told, "OTEL_EXPORTER_OTLP_ENDPOINT": NOBODY, "OTEL_TRACES_SAMPLER": "always_on"},
    }


@contextmanager
def _watched(redis_url: str, settings: Mapping[str, str]) -> Generator[Watched]:
    """A service and its monitor."""
    with api(redis_url, settings=settings) as service, monitor(redis_url, settings) as watching:
        yield Watched(service, watching)


class Quiet:
    """When nobody works any more."""

    def __init__(self, processes: Sequence[ServerProcess]) -> None:
        self._processes = processes

    async def reached(self) -> None:
        while await self._busy() > MAX_IDLE_CORES:
            pass

    async def _busy(self) -> float:
        before = sum(each.cpu_us() for each in self._processes)
        await asyncio.sleep(LOOK_SECONDS)
        return (sum(each.cpu_us() for each in self._processes) - before) / (LOOK_SECONDS * 1e6)


async def _measured(quiet: Quiet, watched: Watched, job: Lives | Repeat, batch: int) -> Round:
    await quiet.reached()
    count = (job.times if isinstance(job, Repeat) else job.rounds) * batch
    api_before, monitor_before = watched.service.cpu_us(), watched.monitor.cpu_us()
    taken = await load(job)
    api_us, monitor_us = watched.service.cpu_us() - api_before, watched.monitor.cpu_us() - monitor_before
    return Round(count / taken.seconds, api_us / count, monitor_us / count)


def _table(title: str, samples: dict[str, list[Round]]) -> Table:
    base = [each.per_second for each in samples[OFF]]
    rows = tuple((name, *_figures(rounds, base)) for name, rounds in samples.items())
    columns = ("told", "tasks a second", "… of off", "µs a task, API", "µs a task, monitor")
    note = "Spans and lines that do not fit are dropped and counted; a monitor that falls behind catches up afterwards."
    return Table(title, columns, rows, note)


def _figures(rounds: list[Round], base: list[float]) -> tuple[Figure, ...]:
    rates = [each.per_second for each in rounds]
    return (
        figure(rates),
        ratio(rates, base),
        figure([each.api_us for each in rounds]),
        figure([each.monitor_us for each in rounds]),
    )


def _target(samples: dict[str, list[Round]], name: str) -> Target:
    """By CPU: it is what bounds a process, and what other programs on the machine disturb least."""
    base, used = ([each.api_us for each in samples[kind]] for kind in (OFF, name))
    lost = 1 - ratio(base, used).median
    return Target(
        f"Throughput an API process loses to being watched, by CPU: {name}", MAX_LOSS_PERCENT, round(100 * lost), "%"
    )
