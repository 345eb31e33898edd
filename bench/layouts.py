"""Ways to keep a task's record and its events, each as a small script that does what a transition does.

A step reads the records of a batch, changes five values of each and writes them back. The scripts are the bench's
own, so that the ways not taken stay measurable; what was chosen, and why, is in docs/layouts.md.
"""

from functools import partial
from typing import NamedTuple

from bench.figures import Findings, Plan, Table, figure, ratio, take_turns
from bench.server import BenchServer, Servers
from tideq.queue_core.scripts.record import HOT

BATCH = 100
CALLS = 20
LEASE = "1-5302261fcd8c14af49ea30b5454f5dc2-7"
HOT_TEXT = f"assigned|2|0|1794903862591|medium:29913397|600000|1|{LEASE}|w1|claimed|1794803862591|||"
COLD_TEXT = "1794903862572|3|0|0|0|1794803862572||||"
NAMES = [field.name for field in HOT]
VALUES = HOT_TEXT.split("|")
DEFINITION = "d" * 130

CHANGE = "t.state, t.version, t.visible_ms, t.reason, t.started_ms = 'executing', '3', now, 'started', now"
TABLE = ", ".join(f"{name} = {name}" for name in NAMES)
LOCALS = ", ".join(NAMES)


def joined(separator: str) -> str:
    return f" .. '{separator}' .. ".join(f"t.{name}" for name in NAMES) + f" .. '{separator}' .. t.cold"


BARS, ZEROS = joined("|"), joined("\\0")
MATCH = (
    f"local {LOCALS}, cold = string.match(s, '^{'([^|]*)|' * len(NAMES)}(.*)$') "
    f"local t = {{{TABLE}, cold = cold}} {CHANGE}"
)
SPLIT = (
    f"local {LOCALS}, at = struct.unpack('{'s' * len(NAMES)}', s) "
    f"local t = {{{TABLE}, cold = string.sub(s, at)}} {CHANGE}"
)
FIELDS = ", ".join(f"'{name}'" for name in NAMES)
EACH = "for i = 2, #ARGV do local id = ARGV[i] "


class Layout(NamedTuple):
    fill: str
    """Store one record `s` and definition `d` as `id`."""
    step: str


LAYOUTS: dict[str, Layout] = {
    "one field, string.match": Layout(
        "redis.call('HSET', 'a' .. id, 's', text, 'd', d)",
        f"{EACH} local s = redis.call('HGET', 'a' .. id, 's') {MATCH} redis.call('HSET', 'a' .. id, 's', {BARS}) end",
    ),
    "one field, struct.unpack": Layout(
        "redis.call('HSET', 'b' .. id, 's', zeros, 'd', d)",
        f"{EACH} local s = redis.call('HGET', 'b' .. id, 's') {SPLIT} redis.call('HSET', 'b' .. id, 's', {ZEROS}) end",
    ),
    "one field, cmsgpack": Layout(
        "redis.call('HSET', 'c' .. id, 's', cmsgpack.pack(values), 'd', d)",
        f"{EACH} local t = cmsgpack.unpack(redis.call('HGET', 'c' .. id, 's')) "
        "t[1], t[2], t[4], t[10], t[12] = 'executing', '3', now, 'started', now "
        "redis.call('HSET', 'c' .. id, 's', cmsgpack.pack(t)) end",
    ),
    "a field a value": Layout(
        f"local t = {{'d', d, 'cold', cold}} for i, name in ipairs({{{FIELDS}}}) do "
        "t[#t + 1] = name t[#t + 1] = values[i] end redis.call('HSET', 'e' .. id, unpack(t))",
        f"{EACH} local t = redis.call('HMGET', 'e' .. id, {FIELDS}) "
        "redis.call('HSET', 'e' .. id, 'state', 'executing', 'version', '3', 'visible_ms', now, "
        "'reason', 'started', 'started_ms', now) end",
    ),
    "a string of its own": Layout(
        "redis.call('SET', 'f' .. id, zeros) redis.call('HSET', 'g' .. id, 'd', d)",
        f"{EACH} local s = redis.call('GET', 'f' .. id) {SPLIT} redis.call('SET', 'f' .. id, {ZEROS}) end",
    ),
    "one hash for all records": Layout(
        "redis.call('HSET', 'records', id, zeros) redis.call('HSET', 'definitions', id, d)",
        f"local all, out = redis.call('HMGET', 'records', unpack(ARGV, 2)), {{}} "
        f"for i = 1, #all do local s = all[i] {SPLIT} out[2 * i - 1], out[2 * i] = ARGV[i + 1], {ZEROS} end "
        "redis.call('HSET', 'records', unpack(out))",
    ),
}

EVENT = "local text = string.rep('x', 220) "
OUTBOXES = {
    "an entry a task": EVENT + f"{EACH} redis.call('XADD', 'each', '*', 'now_ms', now, 'epoch', '1', id, text) end",
    "an entry a batch": EVENT + f"local out = {{}} {EACH} out[#out + 1] = id out[#out + 1] = text end "
    "redis.call('XADD', 'batch', '*', 'now_ms', now, 'epoch', '1', unpack(out))",
    "an entry a batch, joined": EVENT + f"local out = {{}} {EACH} out[#out + 1] = id out[#out + 1] = text end "
    "redis.call('XADD', 'joined', '*', 'now_ms', now, 'epoch', '1', 'events', table.concat(out, '\\n'))",
}


def task_ids(start: int, count: int) -> list[str]:
    return [f"01a1e2a5-8c29-75e2-9cd9-{number:012x}" for number in range(start, start + count)]


async def fill(server: BenchServer, layout: Layout, count: int) -> float:
    """Bytes a task."""
    values = ", ".join(f"'{value}'" for value in VALUES)
    prelude = f"local d, cold, values = ARGV[1], '{COLD_TEXT}', {{{values}}} "
    texts = (
        "local text = table.concat(values, '|') .. '|' .. cold "
        "local zeros = table.concat(values, '\\0') .. '\\0' .. cold "
    )
    script = await server.client.script_load(f"{prelude}{texts}{EACH} {layout.fill} end")
    before = await server.used_bytes()
    for start in range(0, count, BATCH):
        await server.client.evalsha(script, 0, DEFINITION, *task_ids(start, BATCH))
    return (await server.used_bytes() - before) / count


async def step_cost(server: BenchServer, body: str) -> float:
    """µs a task of one batched step."""
    script = await server.client.script_load(f"local now = ARGV[1] {body}")

    async def work() -> None:
        for call in range(CALLS):
            await server.client.evalsha(script, 0, f"17949038625{call:02}", *task_ids(call * BATCH, BATCH))

    return (await server.cost(CALLS * BATCH, work)).cpu_us


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as server:
        sizes = {name: await fill(server, layout, plan.stored_tasks // 5) for name, layout in LAYOUTS.items()}
        variants = {name: partial(step_cost, server, layout.step) for name, layout in LAYOUTS.items()}
        steps = await take_turns(plan.rounds * 3, variants)
        await server.clear()
        outboxes = {name: partial(step_cost, server, body) for name, body in OUTBOXES.items()}
        events = await take_turns(plan.rounds * 3, outboxes)
        keys = ("each", "batch", "joined")
        event_count = plan.rounds * 3 * CALLS * BATCH
        event_bytes = [await server.client.memory_usage(key, samples=0) / event_count for key in keys]
    records = _table("Record: read, change, write", steps, list(sizes.values()))
    return Findings((records, _table("Outbox: append", events, event_bytes)))


def _table(title: str, samples: dict[str, list[float]], sizes: list[float]) -> Table:
    base = next(iter(samples.values()))
    rows = tuple(
        (name, figure(values), ratio(values, base), figure([size]))
        for (name, values), size in zip(samples.items(), sizes, strict=True)
    )
    return Table(title, ("layout", "µs a task", "ratio", "bytes a task"), rows)
