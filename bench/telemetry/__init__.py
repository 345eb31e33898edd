"""Measures the cost of telemetry: whole lives over HTTP with logs and traces off, at their defaults, and all traced.

Each variant has a `tideq serve`, a `tideq monitor` and a queue of its own; all run all the time and take turns. A turn
begins when all processes are idle, because a monitor that still exports the spans of an earlier turn uses a core.
Metrics are counted in every variant. The collector discards what it receives. On two cores, clients, service, monitor,
store and collector share the machine, so CPU used by a monitor is missing elsewhere.
"""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from bench.figures import Figure, Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.http.jobs import Lives, Repeat
from bench.http.processes import ServerProcess, api, load, service_settings, started
from bench.http.rates import LIFE_BATCH, SUBMIT, repeat
from bench.server import Servers
from bench.telemetry import away

OFF, LOGS, TRACES, BOTH, ALL = "off", "logs", "traces, 100 a second", "logs and traces", "every task traced, logs"
HANGING, REFUSING = "the same, collector hangs", "the same, collector refuses"
AWAY = (OFF, HANGING, REFUSING)
MAX_LOSS_PERCENT = 15
COMPARED = (TRACES, BOTH)
CLOSED_PORT_URL = "http://127.0.0.1:9"
CHECK_SECONDS, MAX_IDLE_CORES = 0.5, 0.15
"""A little more than all processes use while they are idle."""


class Round(NamedTuple):
    per_second: float
    api_us: float
    monitor_us: float


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as store, _collector() as url, _collector("hang") as hanging, ExitStack() as running:
        watched = {
            name: running.enter_context(_watched(store.url, {**settings, "TIDEQ_QUEUE": f"watched-{number}"}))
            for number, (name, settings) in enumerate(_settings(url, hanging).items())
        }
        idle = IdleCheck([process for each in watched.values() for process in each])
        lives = {
            name: partial(_measured, idle, each, Lives(each.service.port, plan.http_tasks // LIFE_BATCH), LIFE_BATCH)
            for name, each in watched.items()
        }
        singles = {
            name: partial(_measured, idle, each, repeat(each.service, SUBMIT, 1, plan.http_requests), 1)
            for name, each in watched.items()
        }
        for warm_up in lives.values():
            await warm_up()
        found_lives, found_singles = await take_turns(plan.rounds, lives), await take_turns(plan.rounds, singles)
        await idle.wait()
        gone = await away.measure({name: watched[name] for name in AWAY}, OFF, plan.away_seconds)
    tables = (
        _table("Telemetry: whole lives over HTTP, 100 at a time", found_lives),
        _table("Telemetry: submissions one by one", found_singles),
    )
    targets = (*(_target(found_lives, name) for name in COMPARED), *gone.targets)
    return Findings((*tables, *gone.tables), targets)


def _settings(collector_url: str, hanging_url: str) -> dict[str, dict[str, str]]:
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector_url}
    unlogged, logged = {"TIDEQ_LOG_TRANSITIONS": "off"}, {"TIDEQ_LOG_TRANSITIONS": "on"}
    return {
        OFF: unlogged,
        LOGS: logged,
        TRACES: {**unlogged, **traced},
        BOTH: {**logged, **traced},
        ALL: {**logged, **traced, "OTEL_TRACES_SAMPLER": "always_on"},
        HANGING: {**logged, "OTEL_EXPORTER_OTLP_ENDPOINT": hanging_url, "OTEL_TRACES_SAMPLER": "always_on"},
        REFUSING: {**logged, "OTEL_EXPORTER_OTLP_ENDPOINT": CLOSED_PORT_URL, "OTEL_TRACES_SAMPLER": "always_on"},
    }


@contextmanager
def _watched(redis_url: str, settings: Mapping[str, str]) -> Generator[away.Away]:
    """A service and its monitor, whose log goes to a file."""
    command, chosen = ("-m", "tideq.cli", "monitor"), {**service_settings(redis_url), **settings}
    with api(redis_url, settings=settings) as service, started(command, chosen, "monitoring") as (pid, _):
        yield away.Away(service, ServerProcess(pid, 0))


@contextmanager
def _collector(*behaviour: str) -> Generator[str]:
    """Yields the URL of a collector that discards everything."""
    with started(("-m", "bench.telemetry.collector", *behaviour), {}, "http://") as (_, url):
        yield url


class IdleCheck:
    """Waits until all processes are idle."""

    def __init__(self, processes: Sequence[ServerProcess]) -> None:
        self._processes = processes

    async def wait(self) -> None:
        while await self._busy_cores() > MAX_IDLE_CORES:
            pass

    async def _busy_cores(self) -> float:
        before = sum(each.cpu_us() for each in self._processes)
        await asyncio.sleep(CHECK_SECONDS)
        return (sum(each.cpu_us() for each in self._processes) - before) / (CHECK_SECONDS * 1e6)


async def _measured(idle: IdleCheck, watched: away.Away, job: Lives | Repeat, batch: int) -> Round:
    await idle.wait()
    count = (job.times if isinstance(job, Repeat) else job.rounds) * batch
    api_before, monitor_before = watched.service.cpu_us(), watched.monitor.cpu_us()
    taken = await load(job)
    api_us, monitor_us = watched.service.cpu_us() - api_before, watched.monitor.cpu_us() - monitor_before
    return Round(count / taken.seconds, api_us / count, monitor_us / count)


def _table(title: str, samples: dict[str, list[Round]]) -> Table:
    base = [each.per_second for each in samples[OFF]]
    rows = tuple((name, *_figures(rounds, base)) for name, rounds in samples.items())
    columns = ("telemetry", "tasks a second", "… of off", "µs a task, API", "µs a task, monitor")
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
    """Compares CPU, which limits a process and is least disturbed by other programs on the machine."""
    base, used = ([each.api_us for each in samples[kind]] for kind in (OFF, name))
    lost = 1 - ratio(base, used).median
    return Target(
        f"Throughput an API process loses to telemetry, by CPU: {name}", MAX_LOSS_PERCENT, round(100 * lost), "%"
    )
