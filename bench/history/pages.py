"""How long a page of 50 takes for every filter, against a look-up by id in the same run and through the same code."""

import random
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial

from bench.figures import Figure, Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.history.population import CODES, CUSTOMERS, WEEKS, WIDTHS, WORKERS, Span, populate
from bench.history.stores import Stores, history_stores
from bench.server import Servers
from tideq.persistence.filters import TaskFilter
from tideq.persistence.history import History
from tideq.persistence.listing import Listing
from tideq.persistence.partitions import id_at
from tideq.persistence.terms import error_terms, parameter_term, tag_term

MAX_RATIO = 3.0
KNOWN_IDS = 500
BY_ID = "one task by its id"
NEXT_ID = "SELECT task_id FROM tasks WHERE task_id >= %s ORDER BY task_id LIMIT 1"
FLAGS = ("-c", "max_wal_size=8GB", "-c", "checkpoint_timeout=1h")
"""For filling it: a checkpoint writes every page anew."""

Draw = Callable[[random.Random, Span], TaskFilter]
FILTERS: dict[str, Draw] = {
    "none": lambda _, span: TaskFilter(),
    "state: completed, 96 %": lambda _, span: TaskFilter(states=("completed",)),
    "state: failed, 1 %": lambda _, span: TaskFilter(states=("failed",)),
    "state: queued, executing": lambda _, span: TaskFilter(states=("queued", "executing")),
    "type, 70 %": lambda _, span: TaskFilter(task_type="resize"),
    "type, 0.1 %": lambda _, span: TaskFilter(task_type="rare"),
    "priority, 5 %": lambda _, span: TaskFilter(priority="high"),
    "worker, one of 50": lambda draw, span: TaskFilter(worker_id=f"w{draw.randrange(WORKERS)}"),
    "trace id": lambda draw, span: TaskFilter(trace_id=str(uuid.UUID(int=draw.getrandbits(128)))),
    "tag, 25 %": lambda _, span: TaskFilter(terms=(tag_term("env", "production"),)),
    "tag, one of 2 000": lambda draw, span: TaskFilter(terms=(_customer(draw),)),
    "parameter, one of 500": lambda draw, span: TaskFilter(
        terms=(parameter_term("mail", "width", str(draw.randrange(WIDTHS))),)
    ),
    "word of an error, 2 %": lambda _, span: TaskFilter(terms=tuple(error_terms("upstream"))),
    "an hour of creation": lambda draw, span: _hour(draw, span),
}
COMBINED: dict[str, Draw] = {
    "type and state": lambda _, span: TaskFilter(task_type="resize", states=("failed",)),
    "type and worker": lambda draw, span: TaskFilter(task_type="crawl", worker_id=f"w{draw.randrange(WORKERS)}"),
    "priority, type and state": lambda _, span: TaskFilter(priority="high", task_type="mail", states=("completed",)),
    "two words of an error": lambda draw, span: TaskFilter(terms=tuple(error_terms(f"timed e{draw.randrange(CODES)}"))),
    "tag and state": lambda draw, span: TaskFilter(terms=(_customer(draw),), states=("completed",)),
    "word of an error, type, a week": lambda draw, span: TaskFilter(
        terms=tuple(error_terms("upstream")), task_type="mail", created_from_ms=span.end_ms - 7 * 86_400_000
    ),
}


async def measure(servers: Servers, plan: Plan) -> Findings:
    async with history_stores(servers, WEEKS, FLAGS) as stores:
        span = await populate(stores, plan.history_rows)
        samples = await take_turns(plan.rounds, await _variants(stores, span, plan.history_pages))
    rows = tuple((name, *_figures(rounds, samples[BY_ID])) for name, rounds in samples.items())
    columns = ("filter", "p50, ms", "p99, ms", "p50 in look-ups", "p99 in look-ups")
    title = f"A page of 50 of {plan.history_rows:_} tasks in {WEEKS + 1} partitions"
    note = f"{plan.rounds * plan.history_pages} pages each. Combined filters are those with “and” or a comma."
    worst = max(_ratio(samples[name], samples[BY_ID]).median for name in FILTERS)
    target = Target("page of 50, worst of the single filters, in look-ups by id", MAX_RATIO, worst, "×")
    return Findings((Table(title, columns, rows, note),), (target,))


async def _variants(stores: Stores, span: Span, times: int) -> dict[str, Callable[[], Awaitable[list[float]]]]:
    history, listing, draw = History(stores.database), Listing(stores.database), random.Random(1)
    known = [await _some_id(stores, draw, span) for _ in range(KNOWN_IDS)]

    async def find() -> None:
        if await history.find(draw.choice(known)) is None:
            raise RuntimeError("a task that is there was not found")

    async def page(make: Draw) -> None:
        await listing.page(make(draw, span))

    asked = {BY_ID: find, **{name: partial(page, make) for name, make in (FILTERS | COMBINED).items()}}
    return {name: partial(_timed, ask, times) for name, ask in asked.items()}


async def _timed(ask: Callable[[], Awaitable[None]], times: int) -> list[float]:
    """Milliseconds. The first is left out: it may have to prepare its statement."""
    await ask()
    milliseconds: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await ask()
        milliseconds.append((time.perf_counter() - began) * 1000)
    return milliseconds


async def _some_id(stores: Stores, draw: random.Random, span: Span) -> str:
    first = id_at(draw.randrange(span.start_ms, span.end_ms - 60_000))
    async with stores.database.reading() as connection:
        found = await connection.execute(NEXT_ID, (first,))
        row = await found.fetchone()
    assert row is not None
    return str(row[0])


def _customer(draw: random.Random) -> str:
    return tag_term("customer", f"c{draw.randrange(CUSTOMERS)}")


def _hour(draw: random.Random, span: Span) -> TaskFilter:
    start_ms = draw.randrange(span.start_ms, span.end_ms - 3_600_000)
    return TaskFilter(created_from_ms=start_ms, created_below_ms=start_ms + 3_600_000)


def _figures(rounds: list[list[float]], base: list[list[float]]) -> tuple[Figure, ...]:
    slowest = [[_percentile(each, 99) for each in both] for both in (rounds, base)]
    medians = figure([statistics.median(each) for each in rounds])
    return medians, figure(slowest[0]), _ratio(rounds, base), ratio(*slowest)


def _ratio(rounds: list[list[float]], base: list[list[float]]) -> Figure:
    return ratio([statistics.median(each) for each in rounds], [statistics.median(each) for each in base])


def _percentile(milliseconds: list[float], percent: int) -> float:
    return statistics.quantiles(milliseconds, n=100)[percent - 1]
