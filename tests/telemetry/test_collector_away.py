"""A collector that hangs or is gone, beside none at all: neither throughput nor latency nor memory tells them apart.

A minute of it is six exports that wait their ten seconds in vain. Here they wait for less, and there are as many. Real
processes, lives in turns, so that a busy machine slows all alike. `python -m bench --only telemetry` has the minute.
"""

import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.api.bench import Bench, held
from tests.api.running import environ
from tests.stores import StoreUnderTest, free_port
from tests.telemetry.processes import observed, whole_service
from tests.telemetry.sink import Sink
from tests.telemetry.test_processes import has_journal
from tideq.queue_core.outbox.reader import last_entry_id
from tideq.queue_core.scripts.keys import Keys

EXPORTS_A_MINUTE = 6
HURRIED = {
    "OTEL_EXPORTER_OTLP_TIMEOUT": "0.8",
    "OTEL_BSP_MAX_QUEUE_SIZE": "128",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32",
}
BLOCKS, LIVES_A_BLOCK = 4, 12
MAX_SLOWER, MAX_SLOWER_AT_WORST = 2.0, 4.0
BURSTS, BURST = 16, 500
MAX_GROWTH_KIB = 20_480
"""The spans of the bursts would take 32 MiB. What a process has of the system varies by ten, whatever it does."""


@dataclass
class Service:
    """One variant, API and monitor in one process on a queue of its own, and what its calls took."""

    bench: Bench
    worker_id: str
    pid: int
    queue_name: str
    submits: list[float] = field(default_factory=list[float])
    lives: list[float] = field(default_factory=list[float])

    async def live(self, count: int) -> None:
        began = time.perf_counter()
        await self.bench.call("POST", "/api/v1/tasks/batch", {"tasks": [{"task_type": "a"}] * count})
        self.submits.append(time.perf_counter() - began)
        got = await self.bench.sync(self.worker_id, available_capacity=count)
        holds = [held(task) for task in got["tasks"]]
        assert len(holds) == count
        results = [{**hold, "status": "completed", "result": None} for hold in holds]
        said = await self.bench.sync(self.worker_id, starts=holds, results=results)
        assert all(outcome["ok"] for outcome in said["outcomes"])
        self.lives.append(time.perf_counter() - began)

    def resident_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    async def lost_count(self) -> float:
        told = (await self.bench.http.get("/metrics")).text
        return sum(float(line.split()[-1]) for line in told.splitlines() if line.startswith("tideq_spans_dropped"))


Services = dict[str, Service]


@pytest.fixture
async def services(
    store: StoreUnderTest, database_url: str, queue_name: str, sink: Sink, tmp_path: Path
) -> AsyncIterator[Services]:
    sink.hangs = True
    gone = f"http://127.0.0.1:{free_port()}"
    told = {**HURRIED, "DATABASE_URL": database_url}
    quiet = {"DATABASE_URL": database_url, "TIDEQ_LOG_TRANSITIONS": "off"}
    variants = {
        "off": environ(store.url, f"{queue_name}-off", **quiet),
        "hanging": observed(store.url, f"{queue_name}-hanging", sink.url, **told),
        "gone": observed(store.url, f"{queue_name}-gone", gone, **told),
    }
    async with AsyncExitStack() as running:
        yield {name: await _service(running, store, name, each, tmp_path) for name, each in variants.items()}


async def _service(
    running: AsyncExitStack, store: StoreUnderTest, name: str, settings: dict[str, str], folder: Path
) -> Service:
    process, url = running.enter_context(whole_service(settings, folder, name))
    http = await running.enter_async_context(httpx.AsyncClient(base_url=url, timeout=40))
    bench, queue_name = Bench(http), settings["TIDEQ_QUEUE"]
    if name != "off":
        await has_journal(store, queue_name)
    worker_id = await bench.register(capacity=1_000)
    return Service(bench, worker_id, process.pid, queue_name)


async def test_a_collector_that_is_away_costs_neither_time_nor_memory(
    services: Services, sink: Sink, store: StoreUnderTest
) -> None:
    for service in services.values():
        await service.live(BURST)

    await _live_in_turns(services, sink)
    for name in ("hanging", "gone"):
        _assert_as_fast(services[name], services["off"])

    grown = {name: await _growth(service, store) for name, service in services.items()}
    for name in ("hanging", "gone"):
        assert grown[name] - grown["off"] < MAX_GROWTH_KIB, f"{name}: {grown}"
        assert await services[name].lost_count() > 0
    assert sink.spans == []


async def _live_in_turns(services: Services, sink: Sink) -> None:
    """At least as many blocks as are compared, and until a minute's worth of exports has waited in vain."""
    for service in services.values():
        service.submits.clear()
        service.lives.clear()
    came, blocks = sink.request_count, 0
    while blocks < BLOCKS or sink.request_count - came < EXPORTS_A_MINUTE:
        for _ in range(LIVES_A_BLOCK):
            for service in services.values():
                await service.live(10)
        blocks += 1


async def _growth(service: Service, store: StoreUnderTest) -> int:
    before = service.resident_kib()
    for _ in range(BURSTS):
        await service.live(BURST)
    await _all_told(store, service.queue_name)
    return service.resident_kib() - before


async def _all_told(store: StoreUnderTest, queue_name: str) -> None:
    """The monitor has heard of everything, so whatever it keeps of it, it has by now."""
    client, keys = store.client(), Keys(queue_name)
    newest = (await last_entry_id(client, keys.key("outbox"))).encode()
    while await client.hget(keys.key("monitor_cursor"), "position") not in (newest, None):
        pass
    await client.aclose()


def _assert_as_fast(one: Service, other: Service) -> None:
    """Block by block: the usual case in the middle of them, the worst case in at least one."""
    for ours, theirs in ((one.submits, other.submits), (one.lives, other.lives)):
        pairs = list(zip(_blocks(ours), _blocks(theirs), strict=True))
        usual = [statistics.median(mine) / statistics.median(base) for mine, base in pairs]
        total = [sum(mine) / sum(base) for mine, base in pairs]
        worst = [max(mine) / max(base) for mine, base in pairs]
        assert statistics.median(usual) < MAX_SLOWER, usual
        assert statistics.median(total) < MAX_SLOWER, total
        assert min(worst) < MAX_SLOWER_AT_WORST, worst


def _blocks(times: list[float]) -> list[list[float]]:
    return [times[at : at + LIVES_A_BLOCK] for at in range(0, len(times), LIVES_A_BLOCK)]
