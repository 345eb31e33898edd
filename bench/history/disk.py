"""Measures the bytes of a task on disk, for tables and indexes separately."""

from typing import LiteralString

from bench.figures import Findings, Plan, Table, figure
from bench.history.processes import load, replicating
from bench.history.stores import Stores, history_stores
from bench.history.watching import Watch
from bench.history.work import Failures, Lives, Steps, Work
from bench.server import Servers

PARTS = ("tasks", "task_events", "task_terms")
SIZES: LiteralString = """
    SELECT parent.relname, sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid))
    FROM pg_inherits JOIN pg_class parent ON parent.oid = inhparent
    WHERE parent.relname = ANY (%s) AND parent.relkind = 'p'
    GROUP BY parent.relname
"""


async def measure(servers: Servers, plan: Plan) -> Findings:
    """Measured after VACUUM, because PostgreSQL reuses the space of dead rows."""
    works: dict[str, Work] = {
        "plain, replicated in one batch": Lives(plan.history_tasks),
        "plain, every event in another batch": Steps(plan.history_tasks),
        "two tags and an error": Failures(plan.history_tasks),
    }
    rows = [(name, *(figure([size]) for size in await _bytes(servers, work))) for name, work in works.items()]
    columns = ("task", "in all", *(f"{part}{of}" for part in PARTS for of in ("", ", indexes")))
    note = f"{plan.history_tasks:_} tasks of four events with 100 bytes of parameters. Ten of the terms are words."
    return Findings((Table("Bytes on disk a task", columns, tuple(rows), note),))


async def _bytes(servers: Servers, work: Work) -> list[float]:
    async with history_stores(servers) as stores:
        await load(stores, work)
        async with replicating(stores):
            await Watch(stores).caught_up()
        sizes = await _sizes(stores)
    each = [float(size) / work.tasks for part in PARTS for size in sizes[part]]
    return [sum(each), *each]


async def _sizes(stores: Stores) -> dict[str, tuple[int, int]]:
    async with stores.database.session() as connection:
        await connection.execute("VACUUM tasks, task_events, task_terms")
    return {name: (table, indexes) for name, table, indexes in await stores.rows(SIZES, list(PARTS))}
