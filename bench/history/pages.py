"""Measures a page of 50 tasks for every filter, compared with look-ups by id.

Before every page a task is looked up, so that other load on the machine slows both alike. CPU is that of this process
and of its PostgreSQL backends, and is the same on a busy machine as on an idle one.
"""

import random
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from bench.figures import Figure, Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.history.population import CODES, WEEKS, WORKERS, Span, populate
from bench.history.stores import Stores, history_stores
from bench.server import Servers, process_cpu_us
from tideq.persistence.read.filters import TaskFilter
from tideq.persistence.read.task_list import TaskList
from tideq.persistence.read.tasks import TaskReader
from tideq.persistence.schema.partitions import id_at
from tideq.persistence.terms import error_terms, parameter_term, tag_term

MAX_RATIO = 3.0
LOOKED_UP_IDS = 500
NEXT_ID = "SELECT task_id FROM tasks WHERE task_id >= %s ORDER BY task_id LIMIT 1"
FLAGS = ("-c", "max_wal_size=8GB", "-c", "checkpoint_timeout=1h", "-c", "shared_buffers=1GB")
"""Few checkpoints while the tables are filled, because each writes whole pages again; and shared buffers for a tenth of
the data, because the default of 128 MB does not suit ten million rows."""

COLUMNS = ("filter", "p50, ms", "p99, ms", "p50 in look-ups", "CPU, ms", "CPU in look-ups")
Query = Callable[[], Awaitable[None]]
Draw = Callable[[random.Random, Span], TaskFilter]
FILTERS: dict[str, Draw] = {
    "none": lambda _, span: TaskFilter(),
    "state: completed, 96 %": lambda _, span: TaskFilter(states=("completed",)),
    "state: failed, 1 %": lambda _, span: TaskFilter(states=("failed",)),
    "state: queued, executing": lambda _, span: TaskFilter(states=("queued", "executing")),
    "state: three that ended badly": lambda _, span: TaskFilter(states=("failed", "dead_letter", "cancelled")),
    "type, 70 %": lambda _, span: TaskFilter(task_type="resize"),
    "type, 0.1 %": lambda _, span: TaskFilter(task_type="rare"),
    "priority, 5 %": lambda _, span: TaskFilter(priority="high"),
    "worker, one of 50": lambda draw, span: TaskFilter(worker_id=f"w{draw.randrange(WORKERS)}"),
    "trace id": lambda draw, span: TaskFilter(trace_id=str(uuid.UUID(int=draw.getrandbits(128)))),
    "tag, 25 %": lambda _, span: TaskFilter(terms=(tag_term("env", "production"),)),
    "tag, a rare one": lambda draw, span: TaskFilter(terms=(_customer(draw, span),)),
    "parameter, a rare one": lambda draw, span: TaskFilter(
        terms=(parameter_term("mail", "width", str(draw.randrange(span.widths))),)
    ),
    "word of an error, 2 %": lambda _, span: TaskFilter(terms=tuple(error_terms("upstream"))),
    "an hour of creation": lambda draw, span: _hour(draw, span),
}
COMBINED: dict[str, Draw] = {
    "type and state": lambda _, span: TaskFilter(task_type="resize", states=("failed",)),
    "type and worker": lambda draw, span: TaskFilter(task_type="crawl", worker_id=f"w{draw.randrange(WORKERS)}"),
    "priority, type and state": lambda _, span: TaskFilter(priority="high", task_type="mail", states=("completed",)),
    "two words of an error": lambda draw, span: TaskFilter(terms=tuple(error_terms(f"timed e{draw.randrange(CODES)}"))),
    "tag and state": lambda draw, span: TaskFilter(terms=(_customer(draw, span),), states=("completed",)),
    "word of an error, type, a week": lambda draw, span: TaskFilter(
        terms=tuple(error_terms("upstream")), task_type="mail", created_from_ms=span.end_ms - 7 * 86_400_000
    ),
}


class Pair(NamedTuple):
    """A look-up and the page after it, in milliseconds of time and of CPU."""

    look_up: float
    page: float
    look_up_cpu: float
    page_cpu: float


async def measure(servers: Servers, plan: Plan) -> Findings:
    async with history_stores(servers, WEEKS, FLAGS) as stores:
        span = await populate(stores, plan.history_rows)
        samples = await take_turns(plan.rounds, await variants(stores, span, plan.history_pages))
    title = f"A page of 50 of {plan.history_rows:_} tasks in {WEEKS + 1} partitions"
    note = f"{plan.rounds * plan.history_pages} pages each. Combined filters are those with “and” or a comma."
    return Findings((Table(title, COLUMNS, rows_of(samples), note),), _targets(samples))


def _targets(samples: dict[str, list[list[Pair]]]) -> tuple[Target, ...]:
    """Targets for time and for CPU; CPU is the same on a busy machine."""
    name = "page of 50, worst of the single filters, in look-ups by id"
    on_clock = max(_in_look_ups(samples[each], "page", "look_up").median for each in FILTERS)
    in_cpu = max(_in_look_ups(samples[each], "page_cpu", "look_up_cpu").median for each in FILTERS)
    return Target(name, MAX_RATIO, on_clock, "×"), Target(f"{name}, CPU", MAX_RATIO, in_cpu, "×")


def rows_of(samples: dict[str, list[list[Pair]]]) -> tuple[tuple[str | Figure, ...], ...]:
    return tuple((name, *_figures(rounds)) for name, rounds in samples.items())


async def variants(stores: Stores, span: Span, times: int) -> dict[str, Callable[[], Awaitable[list[Pair]]]]:
    history, listing, draw = TaskReader(stores.database), TaskList(stores.database), random.Random(1)
    task_ids = [await _some_id(stores, draw, span) for _ in range(LOOKED_UP_IDS)]

    async def find() -> None:
        if await history.find(draw.choice(task_ids)) is None:
            raise RuntimeError("an existing task was not found")

    async def page(make: Draw) -> None:
        await listing.page(make(draw, span))

    return {
        name: partial(_timed, stores, find, partial(page, make), times) for name, make in (FILTERS | COMBINED).items()
    }


async def _timed(stores: Stores, find: Query, page: Query, times: int) -> list[Pair]:
    """The first query of each kind is not measured, because it may have to prepare its statement."""
    await find()
    await page()
    backends = await _backends(stores)
    pairs: list[Pair] = []
    for _ in range(times):
        (look_up, look_up_cpu), (took, cpu) = await _cost(find, backends), await _cost(page, backends)
        pairs.append(Pair(look_up, took, look_up_cpu, cpu))
    return pairs


async def _cost(query: Query, backends: list[int]) -> tuple[float, float]:
    """Milliseconds of time, and of CPU."""
    cpu, began = time.process_time() * 1e6 + sum(map(process_cpu_us, backends)), time.perf_counter()
    await query()
    seconds, used = time.perf_counter() - began, time.process_time() * 1e6 + sum(map(process_cpu_us, backends)) - cpu
    return seconds * 1000, used / 1000


async def _backends(stores: Stores) -> list[int]:
    """The pids of the backends; only this process is connected."""
    async with stores.database.reading() as connection:
        found = await connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return [pid for (pid,) in await found.fetchall()]


async def _some_id(stores: Stores, draw: random.Random, span: Span) -> str:
    first = id_at(draw.randrange(span.start_ms, span.end_ms - 60_000))
    async with stores.database.reading() as connection:
        found = await connection.execute(NEXT_ID, (first,))
        row = await found.fetchone()
    assert row is not None
    return str(row[0])


def _customer(draw: random.Random, span: Span) -> str:
    """A tag of one task in 8 000, of ten million; as rare an hour in a smaller history."""
    return tag_term("customer", f"c{draw.randrange(span.customers)}")


def _hour(draw: random.Random, span: Span) -> TaskFilter:
    start_ms = draw.randrange(span.start_ms, span.end_ms - 3_600_000)
    return TaskFilter(created_from_ms=start_ms, created_below_ms=start_ms + 3_600_000)


def _figures(rounds: list[list[Pair]]) -> tuple[Figure, ...]:
    return (
        _median(rounds, "page"),
        figure([statistics.quantiles(_column(pairs, "page"), n=100)[98] for pairs in rounds]),
        _in_look_ups(rounds, "page", "look_up"),
        _median(rounds, "page_cpu"),
        _in_look_ups(rounds, "page_cpu", "look_up_cpu"),
    )


def _in_look_ups(rounds: list[list[Pair]], page: str, look_up: str) -> Figure:
    return ratio(_median(rounds, page).samples, _median(rounds, look_up).samples)


def _median(rounds: list[list[Pair]], field: str) -> Figure:
    return figure([statistics.median(_column(pairs, field)) for pairs in rounds])


def _column(pairs: list[Pair], field: str) -> list[float]:
    return [getattr(pair, field) for pair in pairs]
