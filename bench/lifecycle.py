"""Measures the whole life of a task: submit, claim, start, complete, by batch size and by the depth of the queue.

Each depth has a store of its own, so that a deep queue does not share its keyspace with a shallow one.
"""

from collections.abc import Awaitable
from contextlib import ExitStack
from functools import partial

from bench.figures import Figure, Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.server import WORKER, BenchServer, Cost, Servers
from tideq.queue_core.attempts import LeaseRef, Success
from tideq.queue_core.engine import Engine
from tideq.queue_core.task import ClaimedTask, NewTask

STEPS = ("submit", "claim", "start", "complete")
PAYLOAD = b'{"text":"%s"}' % (b"x" * 89)
"""100 bytes."""
RESULT = b'{"ok":true}'
FILL_BATCH = 1_000
MAX_LIFE_US = 45.0
MAX_DEPTH_RATIO = 1.3

Life = dict[str, Cost]


def new_tasks(count: int) -> list[NewTask]:
    """Tasks of two types, so that a claim has lanes to merge."""
    return [NewTask(task_type="xy"[number % 2], parameters=PAYLOAD) for number in range(count)]


async def fill(engine: Engine, count: int) -> None:
    for _ in range(count // FILL_BATCH):
        await engine.queue.submit_many(new_tasks(FILL_BATCH))


async def live(server: BenchServer, engine: Engine, batch: int, count: int) -> Life:
    """Takes `count` tasks from submission to completion, one step after the other; the depth stays the same."""
    claims: list[tuple[ClaimedTask, ...]] = []

    async def submit() -> None:
        for _ in range(count // batch):
            await engine.queue.submit_many(new_tasks(batch))

    async def claim_all() -> None:
        for _ in range(count // batch):
            claim = await engine.queue.claim(WORKER, batch)
            claims.append(claim.tasks)

    async def start() -> None:
        for tasks in claims:
            await engine.attempts.start(WORKER, [LeaseRef(task.task_id, task.lease) for task in tasks])

    async def complete() -> None:
        for tasks in claims:
            await engine.attempts.complete(WORKER, [Success(task.task_id, task.lease, RESULT) for task in tasks])

    steps = zip(STEPS, (submit, claim_all, start, complete), strict=True)
    return {name: await server.cost(count, step) for name, step in steps}


def life_us(life: Life) -> float:
    return sum(cost.cpu_us for cost in life.values())


async def measure(servers: Servers, plan: Plan) -> Findings:
    with ExitStack() as running:
        variants: dict[str, partial[Awaitable[Life]]] = {}
        for depth in plan.depths:
            server = running.enter_context(servers.start())
            engine = await server.engine()
            await fill(engine, depth)
            for batch, count in plan.tasks_by_batch.items():
                await live(server, engine, batch, batch)
                variants[f"{depth} {batch}"] = partial(live, server, engine, batch, count)
        samples = await take_turns(plan.rounds, variants)
    tables = (_cpu_table(plan, samples), _rate_table(plan, samples), _depth_table(plan, samples))
    return Findings(tables, _targets(plan, samples))


def _cpu_table(plan: Plan, samples: dict[str, list[Life]]) -> Table:
    rows = [
        (f"{depth:_}", str(batch), *_cpu_figures(samples[f"{depth} {batch}"]))
        for depth in plan.depths
        for batch in plan.tasks_by_batch
    ]
    columns = ("queued", "batch", *STEPS, "whole life", "… all threads")
    return Table("Server CPU, µs a task", columns, tuple(rows), "Main thread, but for the last column.")


def _cpu_figures(lives: list[Life]) -> list[Figure]:
    steps = [figure([life[step].cpu_us for life in lives]) for step in STEPS]
    total = figure([sum(cost.total_cpu_us for cost in life.values()) for life in lives])
    return [*steps, figure([life_us(life) for life in lives]), total]


def _rate_table(plan: Plan, samples: dict[str, list[Life]]) -> Table:
    rows = [
        (f"{depth:_}", str(batch), *_rate_figures(samples[f"{depth} {batch}"]))
        for depth in plan.depths
        for batch in plan.tasks_by_batch
    ]
    note = "One client process, one call at a time: mostly the price of the round trip and of Python."
    return Table("Tasks a second", ("queued", "batch", *STEPS), tuple(rows), note)


def _rate_figures(lives: list[Life]) -> list[Figure]:
    return [figure([life[step].per_second for life in lives]) for step in STEPS]


def _depth_table(plan: Plan, samples: dict[str, list[Life]]) -> Table:
    rows = [
        (f"{depth:_}", str(batch), _depth_ratio(plan, samples, depth, batch))
        for depth in plan.depths[1:]
        for batch in plan.tasks_by_batch
    ]
    return Table(f"Whole life against {plan.depths[0]:_} queued", ("queued", "batch", "ratio"), tuple(rows))


def _depth_ratio(plan: Plan, samples: dict[str, list[Life]], depth: int, batch: int) -> Figure:
    shallow = [life_us(life) for life in samples[f"{plan.depths[0]} {batch}"]]
    return ratio([life_us(life) for life in samples[f"{depth} {batch}"]], shallow)


def _targets(plan: Plan, samples: dict[str, list[Life]]) -> tuple[Target, ...]:
    shallow, deep, batch = plan.depths[0], plan.depths[-1], max(plan.tasks_by_batch)
    life = figure([life_us(life) for life in samples[f"{shallow} {batch}"]]).median
    depth = _depth_ratio(plan, samples, deep, batch).median
    return (
        Target(f"whole life of a task, batch {batch}, {shallow:_} queued", MAX_LIFE_US, life, "µs"),
        Target(f"{deep:_} queued against {shallow:_}, batch {batch}", MAX_DEPTH_RATIO, depth, "×"),
    )
