"""Compares a queue of one partition with a queue of eight, on one server and on clusters of one to three nodes.

All nodes share this machine's cores, so tasks a second mean little for clusters. Server CPU a task, of all nodes and of
the busiest node, shows the load of a node with a machine of its own.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.figures import Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.lifecycle import RESULT, new_tasks
from bench.server import NO_LIMITS, Servers
from tests.partitions.cluster import running_cluster
from tideq.queue_core.attempts import LeaseRef, Success
from tideq.queue_core.engine import Engine, assemble_engine
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.connect import connect, node_client
from tideq.queue_core.task import WorkerDeclaration

PARTITIONS = 8
BATCH = 100
WORKERS = 4
MAX_EVEN = 1.6
"""The busiest of three nodes may have this multiple of an even share: two have three partitions, one has two."""


class Life(NamedTuple):
    per_second: float
    cpu_us: float
    busiest_us: float


class Site(NamedTuple):
    engine: Engine
    servers: Sequence[Any]
    """A client of each node."""


async def measure(servers: Servers, plan: Plan) -> Findings:
    count = 4_000 if plan.rounds > 3 else 1_200
    clients: list[Any] = []
    with ExitStack() as running, TemporaryDirectory(prefix="tideq-clusters-") as folder:
        plain = running.enter_context(servers.start())
        sites = {
            "one partition, plain": await _site(plain.client, [plain.client], 1),
            "8 partitions, plain": await _site(plain.client, [plain.client], PARTITIONS),
        }
        for nodes in (1, 2, 3):
            cluster = running.enter_context(running_cluster(Path(folder) / str(nodes), nodes))
            client = connect(cluster.url)
            await client.initialize()
            own = [node_client(node) for node in client.get_primaries()]
            clients += [client, *own]
            sites[f"8 partitions, {nodes} nodes"] = await _site(client, own, PARTITIONS)
        samples = await take_turns(
            plan.rounds, {name: partial[Awaitable[Life]](live, site, count) for name, site in sites.items()}
        )
        for client in clients:
            await client.aclose()
    return Findings((_table(samples),), _targets(samples))


async def _site(client: Any, servers: Sequence[Any], partitions: int) -> Site:
    settings = QueueSettings(queue_name=f"bench{partitions}", admission=NO_LIMITS, partitions=(partitions,))
    engine = assemble_engine(client, settings)
    await engine.queue.open()
    for number in range(WORKERS):
        await engine.fleet.register(WorkerDeclaration(worker_id=f"w{number}", capacity=1_000))
    site = Site(engine, servers)
    await live(site, WORKERS * BATCH)
    return site


async def live(site: Site, count: int) -> Life:
    """Takes tasks from submission to completion, by several producers and workers at once, in batches."""
    before, began = await _cpu(site.servers), time.perf_counter()
    share = count // WORKERS
    await asyncio.gather(*(_produce(site.engine, share) for _ in range(WORKERS)))
    await asyncio.gather(*(_work(site.engine, f"w{number}") for number in range(WORKERS)))
    elapsed = time.perf_counter() - began
    spent = [after - earlier for after, earlier in zip(await _cpu(site.servers), before, strict=True)]
    return Life(count / elapsed, sum(spent) / count, max(spent) / count)


async def _produce(engine: Engine, count: int) -> None:
    for _ in range(count // BATCH):
        await engine.queue.submit_many(new_tasks(BATCH))


async def _work(engine: Engine, worker_id: str) -> None:
    while tasks := (await engine.queue.claim(worker_id, BATCH)).tasks:
        held = [LeaseRef(task.task_id, task.lease) for task in tasks]
        await engine.attempts.start(worker_id, held)
        await engine.attempts.complete(worker_id, [Success(*each, RESULT) for each in held])


async def _cpu(servers: Sequence[Any]) -> list[float]:
    infos = [await server.info("cpu") for server in servers]
    return [(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"]) * 1e6 for info in infos]


def _table(samples: dict[str, list[Life]]) -> Table:
    first = samples["one partition, plain"]
    rows = [
        (
            name,
            figure([life.per_second for life in lives]),
            figure([life.cpu_us for life in lives]),
            figure([life.busiest_us for life in lives]),
            ratio([life.cpu_us for life in lives], [life.cpu_us for life in first]),
        )
        for name, lives in samples.items()
    ]
    columns = ("queue", "lives/s here", "CPU µs a task", "… of the busiest node", "CPU against one partition")
    note = f"Batches of {BATCH}, {WORKERS} producers and workers. All nodes share this machine: compare CPU, not rates."
    return Table("Partitions: server CPU and rate", columns, tuple(rows), note)


def _targets(samples: dict[str, list[Life]]) -> tuple[Target, ...]:
    three = samples["8 partitions, 3 nodes"]
    share = figure([life.busiest_us / life.cpu_us * 3 for life in three]).median
    return (Target("the busiest of three nodes against an even share", MAX_EVEN, share, "x"),)
