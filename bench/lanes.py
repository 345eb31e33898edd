"""Measures the cost of other lanes for a claim: many tasks the worker does not serve, and a worker that serves all.

Each round releases the tasks it claimed, unmeasured, so that every round finds the same queue.
"""

from collections.abc import Awaitable, Sequence
from functools import partial

from bench.figures import Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.lifecycle import PAYLOAD
from bench.server import WORKER, BenchServer, Servers
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.engine import Engine
from tideq.queue_core.task import ClaimedTask, NewTask

OWN_TASKS = 5_000
CLAIMED = {1: 300, 10: 1_000, 100: 3_000}
CROWD_LANES = 10
MAX_OTHER_LANES_RATIO = 1.1


async def submit_spread(engine: Engine, task_types: Sequence[str], count: int) -> None:
    for start in range(0, count, 1_000):
        size = min(1_000, count - start)
        types = (task_types[number % len(task_types)] for number in range(start, start + size))
        await engine.queue.submit_many([NewTask(task_type=name, parameters=PAYLOAD) for name in types])


async def claim_cost(server: BenchServer, engine: Engine, batch: int) -> float:
    """µs of server CPU for each claimed task."""
    count, claimed = CLAIMED[batch], list[ClaimedTask]()

    async def work() -> None:
        for _ in range(count // batch):
            claimed.extend((await engine.queue.claim(WORKER, batch)).tasks)

    cost = await server.cost(count, work)
    if len(claimed) != count:
        raise RuntimeError(f"{len(claimed)} tasks were claimed, {count} were there")
    for start in range(0, count, 100):
        await engine.attempts.release(
            WORKER, [LeaseRef(task.task_id, task.lease) for task in claimed[start : start + 100]]
        )
    return cost.cpu_us


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as server:
        crowd, target = await _crowd(server, plan)
    with servers.start() as server:
        any_type = await _any_type(server, plan)
    return Findings((crowd, any_type), (target,))


async def _crowd(server: BenchServer, plan: Plan) -> tuple[Table, Target]:
    alone, crowded = [await server.engine(name, task_types=("own",)) for name in ("alone", "crowded")]
    for engine in (alone, crowded):
        await submit_spread(engine, ["own"], OWN_TASKS)
    await submit_spread(crowded, [f"other-{number}" for number in range(CROWD_LANES)], plan.other_lane_tasks)
    variants = {
        f"{name} {batch}": partial(claim_cost, server, engine, batch)
        for name, engine in (("alone", alone), ("crowded", crowded))
        for batch in CLAIMED
    }
    samples = await take_turns(plan.rounds, variants)
    ratios = {batch: ratio(samples[f"crowded {batch}"], samples[f"alone {batch}"]) for batch in CLAIMED}
    rows = tuple(
        (str(batch), figure(samples[f"alone {batch}"]), figure(samples[f"crowded {batch}"]), ratios[batch])
        for batch in CLAIMED
    )
    title = f"Claim behind {plan.other_lane_tasks:_} tasks of {CROWD_LANES} other lanes, µs a task"
    worst = max(found.median for found in ratios.values())
    name = f"claim behind {plan.other_lane_tasks:_} tasks of other lanes, worst batch"
    table = Table(title, ("batch", "alone", "crowded", "ratio"), rows)
    return table, Target(name, MAX_OTHER_LANES_RATIO, worst, "×")


async def _any_type(server: BenchServer, plan: Plan) -> Table:
    variants: dict[str, partial[Awaitable[float]]] = {}
    for lanes in plan.lane_counts:
        engine = await server.engine(f"lanes-{lanes}")
        await submit_spread(engine, [f"type-{number}" for number in range(lanes)], OWN_TASKS)
        for batch in CLAIMED:
            variants[f"{lanes} {batch}"] = partial(claim_cost, server, engine, batch)
    samples = await take_turns(plan.rounds, variants)
    rows = tuple(
        (f"{lanes:_}", *(figure(samples[f"{lanes} {batch}"]) for batch in CLAIMED)) for lanes in plan.lane_counts
    )
    title = "Claim by a worker that takes any type, µs a task"
    return Table(title, ("lanes in use", *(f"batch {batch}" for batch in CLAIMED)), rows)
