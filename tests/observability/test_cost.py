"""A scrape costs the same whatever waits: the store is asked the same few things and answers as much."""

from typing import Any, NamedTuple

from tests.contract.situations import ended_types
from tests.observability.conftest import Whole
from tests.observability.scrape import scrape
from tideq.queue_core.engine.ended import MOST_KINDS
from tideq.queue_core.readings import MAX_TASK_TYPES
from tideq.queue_core.task import NewTask

FEW, MANY = 1_000, 30_000
BATCH = 1_000
FEW_TYPES, MANY_TYPES = 900, 1_900
STATS = "/api/v1/queue/stats"
LOOKS = 10
READING = {
    "hgetall",
    "hmget",
    "hget",
    "zcount",
    "zcard",
    "zrange",
    "scard",
    "xlen",
    "xread",
    "info",
    "fcall",
    "evalsha",
}


class Cost(NamedTuple):
    commands: dict[str, int]
    answer_bytes: int
    busy_microseconds: int
    """The least of several, as the store itself measures."""


async def test_a_scrape_asks_the_store_as_little_at_a_great_depth_as_at_a_small_one(quiet: Whole) -> None:
    await _fill(quiet, FEW)
    shallow = await _cost(quiet)
    await _fill(quiet, MANY - FEW)

    deep = await _cost(quiet)

    assert (await scrape(quiet.http)).value("tideq_queue_tasks", state="queued") == MANY
    assert deep.commands == shallow.commands
    assert sum(deep.commands.values()) < 40
    assert deep.answer_bytes < shallow.answer_bytes * 1.5
    assert deep.busy_microseconds < shallow.busy_microseconds * 3


async def test_totals_cost_the_same_however_many_types_ever_ended(quiet: Whole) -> None:
    await quiet.kit.worker(capacity=BATCH)
    await ended_types(quiet.kit, FEW_TYPES)
    some = await _cost(quiet, STATS)
    await ended_types(quiet.kit, MANY_TYPES - FEW_TYPES, FEW_TYPES)

    many = await _cost(quiet, STATS)

    told = (await quiet.http.get(STATS)).json()["queue"]
    assert told["totals"]["completed"] == MANY_TYPES
    assert sum(states["completed"] for states in told["by_type_and_state"].values()) == MANY_TYPES
    assert len(told["by_type_and_state"]) == MAX_TASK_TYPES + 1
    assert await quiet.kit.client.hlen(quiet.kit.keys.key("ended")) <= MOST_KINDS + 8
    assert many.commands == some.commands
    assert many.answer_bytes < some.answer_bytes * 1.1
    assert many.busy_microseconds < some.busy_microseconds * 3


async def _fill(quiet: Whole, count: int) -> None:
    """Of three priorities and several types, as a busy queue would be."""
    levels = ("high", "medium", "low")
    for _ in range(count // BATCH):
        new = [NewTask(task_type=f"type-{number % 7}", priority=levels[number % 3]) for number in range(BATCH)]
        await quiet.kit.queue.submit_many(new)


async def _cost(quiet: Whole, path: str = "/metrics") -> Cost:
    """What one scrape has the store do; nobody else is at work on it."""
    text = (await quiet.http.get(path)).content
    commands = min([await _commands(quiet, path) for _ in range(LOOKS)], key=lambda each: sum(each.values()))
    busy = [await _busy(quiet, path) for _ in range(LOOKS)]
    return Cost(commands, len(text), min(busy))


async def _commands(quiet: Whole, path: str) -> dict[str, int]:
    """Now and then with something that the service does by the clock: the least of several has none of it."""
    before = await _done(quiet.kit.client)
    await quiet.http.get(path)
    after = await _done(quiet.kit.client)
    counts = {name: after[name] - before.get(name, 0) for name in after if name in READING}
    return {name: count for name, count in counts.items() if count}


async def _busy(quiet: Whole, path: str) -> int:
    before = await quiet.kit.client.info("commandstats")
    await quiet.http.get(path)
    after = await quiet.kit.client.info("commandstats")
    names = ("cmdstat_evalsha", "cmdstat_xread")
    return sum(after[name]["usec"] - before[name]["usec"] for name in names if name in after and name in before)


async def _done(client: Any) -> dict[str, int]:
    info = await client.info("commandstats")
    return {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in info.items()}
