"""Measures the store alone: an empty script, and bare commands in a pipeline. Compare other figures with these."""

from functools import partial

from bench.figures import Findings, Plan, Table, figure, take_turns
from bench.server import BenchServer, Servers

CALLS = 5_000
PIPELINE = 100
RECORD = "x" * 220


async def empty_script(server: BenchServer) -> float:
    """µs a call."""
    sha = await server.client.script_load("return 1")

    async def work() -> None:
        for _ in range(CALLS // PIPELINE):
            pipeline = server.client.pipeline(transaction=False)
            for _ in range(PIPELINE):
                pipeline.evalsha(sha, 0)
            await pipeline.execute()

    return (await server.cost(CALLS, work)).cpu_us


async def bare_commands(server: BenchServer) -> float:
    """µs for one HSET of a record and one ZADD."""

    async def work() -> None:
        for start in range(0, CALLS, PIPELINE):
            pipeline = server.client.pipeline(transaction=False)
            for number in range(start, start + PIPELINE):
                pipeline.hset(f"reference:{number}", "s", RECORD)
                pipeline.zadd("reference", {f"task-{number}": number})
            await pipeline.execute()

    return (await server.cost(CALLS, work)).cpu_us


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as server:
        version = await server.client.info("server")
        memory = await server.client.info("memory")
        variants = {"empty script": partial(empty_script, server), "HSET and ZADD": partial(bare_commands, server)}
        samples = await take_turns(plan.rounds, variants)
    name = f"{version.get('server_name', 'redis')} {version.get('valkey_version', version['redis_version'])}"
    title = f"Reference: {name}, {memory['mem_allocator']}"
    rows = tuple((variant, figure(values)) for variant, values in samples.items())
    return Findings((Table(title, ("in a pipeline of 100", "µs"), rows),))
