"""How many bytes a queued task takes, its pending event included, and where they are."""

from bench.figures import Findings, Plan, Table, Target, figure
from bench.lifecycle import new_tasks
from bench.server import BenchServer, Servers
from tideq.queue_core.engine.keys import Keys

BATCHES = (1, 10, 100)
MAX_BYTES = 600.0
SAMPLED = 100
CHEAP_SHARE = 4
"""Single submissions take a whole round trip each: a quarter of the tasks says as much."""


async def queued_bytes(server: BenchServer, batch: int, count: int) -> dict[str, float]:
    """Bytes a task: all of them, and of these the sorted set's, the outbox's and the task's own key."""
    await server.clear()
    engine = await server.engine()
    before = await server.used_bytes()
    ids = [one.task_id for _ in range(count // batch) for one in await engine.queue.submit_many(new_tasks(batch))]
    total = await server.used_bytes() - before
    keys, usage = Keys("bench"), server.client.memory_usage
    sampled = [await usage(keys.prefix("task") + task_id) for task_id in ids[:: len(ids) // SAMPLED]]
    return {
        "total": total / count,
        "sorted set": await usage(keys.key("queue"), samples=0) / count,
        "outbox": await usage(keys.key("outbox"), samples=0) / count,
        "task": sum(sampled) / len(sampled),
    }


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as server:
        counts = {batch: plan.stored_tasks // (CHEAP_SHARE if batch == 1 else 1) for batch in BATCHES}
        found = {batch: await queued_bytes(server, batch, counts[batch]) for batch in BATCHES}
    parts = ("total", "task", "sorted set", "outbox")
    rows = tuple(
        (str(batch), f"{counts[batch]:_}", *(figure([found[batch][part]]) for part in parts)) for batch in BATCHES
    )
    note = "`used_memory` of an otherwise empty store. The rest is the keyspace's own table, which grows by doubling."
    table = Table("Bytes a queued task with a 100-byte payload", ("batch", "tasks", *parts), rows, note)
    targets = tuple(
        Target(f"bytes a queued task, submitted {batch} at a time", MAX_BYTES, found[batch]["total"], "B")
        for batch in (1, 100)
    )
    return Findings((table,), targets)
