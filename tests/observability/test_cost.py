"""A scrape costs the same whatever waits: the store is asked the same few things and answers as much."""

from typing import Any, NamedTuple

from tests.observability.conftest import Whole
from tests.observability.scrape import scrape
from tideq.queue_core.task import NewTask

FEW, MANY = 1_000, 30_000
BATCH = 1_000
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


async def _fill(quiet: Whole, count: int) -> None:
    """Of three priorities and several types, as a busy queue would be."""
    levels = ("high", "medium", "low")
    for _ in range(count // BATCH):
        new = [NewTask(task_type=f"type-{number % 7}", priority=levels[number % 3]) for number in range(BATCH)]
        await quiet.kit.queue.submit_many(new)


async def _cost(quiet: Whole) -> Cost:
    """What one scrape has the store do; nobody else is at work on it."""
    text = (await quiet.http.get("/metrics")).content
    commands = min([await _commands(quiet) for _ in range(LOOKS)], key=lambda each: sum(each.values()))
    busy = [await _busy(quiet) for _ in range(LOOKS)]
    return Cost(commands, len(text), min(busy))


async def _commands(quiet: Whole) -> dict[str, int]:
    """Now and then with something that the service does by the clock: the least of several has none of it."""
    before = await _done(quiet.kit.client)
    await quiet.http.get("/metrics")
    after = await _done(quiet.kit.client)
    counts = {name: after[name] - before.get(name, 0) for name in after if name in READING}
    return {name: count for name, count in counts.items() if count}


async def _busy(quiet: Whole) -> int:
    before = await quiet.kit.client.info("commandstats")
    await quiet.http.get("/metrics")
    after = await quiet.kit.client.info("commandstats")
    return sum(after[name]["usec"] - before[name]["usec"] for name in ("cmdstat_evalsha", "cmdstat_xread"))


async def _done(client: Any) -> dict[str, int]:
    info = await client.info("commandstats")
    return {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in info.items()}
