"""The parts shared by all Python drivers: a client that takes orders on standard input, and a no-op handler.

The interpreter of a peer's own environment runs its driver, as `client` or as `worker`, with its settings as JSON, so
only the standard library may be imported here. An order and its answer are one line of JSON each:

    {"do": "single", "seconds": 1.5, "at_once": 1}      one call a task, for this time -> {"count", "seconds"}
    {"do": "bulk", "seconds": 1.5, "batch": 1000}       this many tasks a call, for this time -> the same
    {"do": "paced", "count": 500, "per_second": 200}    one call a task at an even rate -> the same
    {"do": "left"}                                      tasks the store has not seen acknowledged -> {"left"}

The answer to a failed order is {"error"}; the driver then ends. `protocol.mjs` is the same for Node.
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import time
import traceback
from types import SimpleNamespace

DELAYS = os.open(os.environ["PEERS_DELAYS"], os.O_APPEND | os.O_WRONLY) if os.environ.get("PEERS_DELAYS") else 0


def handle(sent: float) -> None:
    """The no-op task; a task with the time it was sent is a probe for latency."""
    if sent and DELAYS:
        os.write(DELAYS, f"{(time.time() - sent) * 1000}\n".encode())


class Driver:
    distribution = ""
    """The name on PyPI, from which the version is read."""
    has_async = True
    """Whether one process can have several submissions under way."""

    def __init__(self, settings: SimpleNamespace) -> None:
        self.settings = settings

    async def open(self) -> None:
        """Connect as a producer."""

    async def submit(self, sent: float) -> None:
        raise NotImplementedError

    async def submit_many(self, count: int) -> None:
        """One bulk call where the library has one; else single calls, concurrent or one after the other."""
        if self.has_async:
            await asyncio.gather(*[self.submit(0.0) for _ in range(count)])
        else:
            for _ in range(count):
                await self.submit(0.0)

    async def left(self) -> int:
        raise NotImplementedError

    def work(self) -> None:
        """The library's own worker, one process, until it is killed."""
        raise NotImplementedError


def main(driver_class: type[Driver]) -> None:
    role, text = sys.argv[1:]
    driver = driver_class(SimpleNamespace(**json.loads(text)))
    if role == "worker":
        driver.work()
        return
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(driver))
    else:
        uvloop.run(_serve(driver))


async def _serve(driver: Driver) -> None:
    orders = {"single": _single, "bulk": _bulk, "paced": _paced, "left": _left}
    await driver.open()
    version = importlib.metadata.version(driver.distribution)
    _write({"version": version, "has_async": driver.has_async})
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        try:
            _write(await orders[order.pop("do")](driver, **order))
        except Exception:
            _write({"error": traceback.format_exc(limit=-3)})
            return


def _write(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _single(driver: Driver, seconds: float, at_once: int) -> dict[str, object]:
    counts, began = [0] * at_once, time.perf_counter()

    async def go_on(number: int) -> None:
        while time.perf_counter() - began < seconds:
            await driver.submit(0.0)
            counts[number] += 1

    await asyncio.gather(*map(go_on, range(at_once)))
    return {"count": sum(counts), "seconds": time.perf_counter() - began}


async def _bulk(driver: Driver, seconds: float, batch: int) -> dict[str, object]:
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        await driver.submit_many(batch)
        count += batch
    return {"count": count, "seconds": time.perf_counter() - began}


async def _paced(driver: Driver, count: int, per_second: float) -> dict[str, object]:
    began = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(max(began + number / per_second - time.perf_counter(), 0))
        await driver.submit(time.time())
    return {"count": count, "seconds": time.perf_counter() - began}


async def _left(driver: Driver) -> dict[str, object]:
    return {"left": await driver.left()}
