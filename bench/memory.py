"""Measures the bytes of a queued task with its pending event, by key."""

from bench.figures import Findings, Plan, Table, Target, figure
from bench.lifecycle import new_tasks
from bench.server import BenchServer, Servers
from tideq.queue_core.scripts.keys import Keys

BATCHES = (1, 10, 100)
MAX_BYTES = 600.0
PARTS = ("queue", "records", "definitions", "outbox")
CHEAP_SHARE = 4
"""Single submissions take a round trip each, so only a quarter of the tasks is submitted singly."""


async def queued_bytes(server: BenchServer, batch: int, count: int) -> dict[str, float]:
    """Bytes a task, in all and for each key."""
    await server.clear()
    engine = await server.engine()
    before = await server.used_bytes()
    for _ in range(count // batch):
        await engine.queue.submit_many(new_tasks(batch))
    total = await server.used_bytes() - before
    keys, usage = Keys("bench"), server.client.memory_usage
    return {"total": total / count} | {name: await usage(keys.key(name), samples=0) / count for name in PARTS}


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as server:
        counts = {batch: plan.stored_tasks // (CHEAP_SHARE if batch == 1 else 1) for batch in BATCHES}
        found = {batch: await queued_bytes(server, batch, counts[batch]) for batch in BATCHES}
    parts = ("total", *PARTS)
    rows = tuple(
        (str(batch), f"{counts[batch]:_}", *(figure([found[batch][part]]) for part in parts)) for batch in BATCHES
    )
    note = "`used_memory` of an otherwise empty store; the hashes' own tables grow by doubling."
    table = Table("Bytes a queued task with a 100-byte payload", ("batch", "tasks", *parts), rows, note)
    targets = tuple(
        Target(f"bytes a queued task, submitted {batch} at a time", MAX_BYTES, found[batch]["total"], "B")
        for batch in (1, 100)
    )
    return Findings((table,), targets)
