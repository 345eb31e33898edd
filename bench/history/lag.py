"""Measures the age of events at their commit in history, at a steady load.

PostgreSQL records commit times, and every event has the store's time, so one query afterwards is enough, and nothing
disturbs the run. Both use this machine's clock.
"""

from functools import partial
from typing import NamedTuple

from bench.figures import Findings, Plan, Table, Target, figure, take_turns
from bench.history.processes import load, replicating
from bench.history.stores import Stores
from bench.history.watching import Watch
from bench.history.work import Lives

TASKS_PER_SECOND = 2_000
BATCHES = (10, 100)
MAX_P99_MS = 1_000
AGES = """
    SELECT percentile_cont(ARRAY[0.5, 0.99, 1.0]) WITHIN GROUP (
        ORDER BY extract(epoch FROM pg_xact_commit_timestamp(xmin) - at) * 1000
    )
    FROM task_events WHERE at >= to_timestamp(%s / 1000.0) AND at < to_timestamp(%s / 1000.0)
"""


class Round(NamedTuple):
    """Ages in milliseconds, then CPU in µs an event."""

    p50: float
    p99: float
    worst: float
    replicator_us: float
    backend_us: float
    tasks_per_second: float


async def measure(stores: Stores, plan: Plan) -> Findings:
    samples = await take_turns(
        plan.rounds, {f"{batch}": partial(_round, stores, batch, plan.history_seconds) for batch in BATCHES}
    )
    rows = tuple((name, *(figure(column) for column in zip(*rounds, strict=True))) for name, rounds in samples.items())
    columns = ("tasks in a call", "p50, ms", "p99", "oldest", "replicator, µs an event", "its backend", "tasks/s")
    title = f"Lag at {TASKS_PER_SECOND:_} tasks a second: age of an event at its commit"
    note = f"{plan.history_seconds} s a round, whole lives, the first second left out."
    p99 = figure([each.p99 for each in samples[f"{BATCHES[-1]}"]]).median
    target = Target(f"lag p99 at {TASKS_PER_SECOND:_} tasks a second, {BATCHES[-1]} in a call", MAX_P99_MS, p99, "ms")
    return Findings((Table(title, columns, rows, note),), (target,))


async def _round(stores: Stores, batch: int, seconds: int) -> Round:
    watch = Watch(stores)
    await watch.drop_replicated()
    work = Lives(TASKS_PER_SECOND * seconds, batch, flows=8, tasks_per_second=TASKS_PER_SECOND)
    async with replicating(stores) as replicator:
        before, cpu, began_ms = await watch.checkpoint(), replicator.cpu_us(), await watch.now_ms()
        done = await load(stores, work)
        reached = await watch.caught_up()
        used = zip(replicator.cpu_us(), cpu, strict=True)
    events = reached.event_count - before.event_count
    first_ms = reached.now_ms - round(done.seconds * 1000) + 1_000
    ((ages,),) = await stores.rows(AGES, max(first_ms, began_ms), reached.now_ms + 1)
    p50, p99, worst = map(float, ages)
    replicator_us, backend_us = ((after - before) / events for after, before in used)
    return Round(p50, p99, worst, replicator_us, backend_us, done.tasks / done.seconds)
