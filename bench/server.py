"""Starts a store for the benchmark, reads its CPU and memory, and assembles an engine on it.

CPU is that of the main thread where the store reports it (Redis 6.2 and later, Valkey), because scripts run there; the
total includes the threads that sync the append-only file. Memory is `used_memory`, which with libc's allocator excludes
8 bytes of header an allocation: compare only builds with the same allocator.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tideq.embedded import EmbeddedStores, PostgresOptions, ServerNotInstalled, ValkeyOptions, bundled_valkey
from tideq.queue_core.engine import Engine, assemble_engine
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.store.connect import connect
from tideq.queue_core.task import WorkerDeclaration

# No snapshot and no rewrite of the append-only file in the middle of a round: either forks the server.
QUIET = ("--save", "", "--auto-aof-rewrite-percentage", "0")
WORKER = "bench"
NO_LIMITS = Admission(
    soft_depth=10**8, high_only_depth=10**8, max_depth=10**8, max_outbox_entries=10**8, max_new_lanes_per_day=2_047
)


def process_cpu_us(pid: int) -> float:
    """CPU of all threads of a process, from its Linux CPU clock; `/proc` only counts ticks of 10 ms."""
    try:
        return time.clock_gettime(~pid << 3 | 2) * 1e6
    except OSError:
        return 0.0


class Cpu(NamedTuple):
    main_us: float
    total_us: float


class Cost(NamedTuple):
    """The cost of one item."""

    cpu_us: float
    total_cpu_us: float
    per_second: float


class BenchServer:
    def __init__(self, url: str, database_url: str = "") -> None:
        self.url = url
        self.database_url = database_url
        self.client: Any = connect(url)

    async def cpu(self) -> Cpu:
        info = await self.client.info("cpu")
        total = info["used_cpu_user"] + info["used_cpu_sys"]
        main = info.get("used_cpu_user_main_thread", 0.0) + info.get("used_cpu_sys_main_thread", 0.0)
        return Cpu((main or total) * 1e6, total * 1e6)

    async def used_bytes(self) -> int:
        """The lowest of a few readings, because buffers of the append-only file come and go."""
        readings: list[int] = []
        for _ in range(5):
            readings.append((await self.client.info("memory"))["used_memory"])
            await asyncio.sleep(0.02)
        return min(readings)

    async def clear(self) -> None:
        await self.client.execute_command("FLUSHALL", "SYNC")

    async def cost(self, item_count: int, work: Callable[[], Awaitable[object]]) -> Cost:
        before, began = await self.cpu(), time.perf_counter()
        await work()
        elapsed, after = time.perf_counter() - began, await self.cpu()
        main, total = after.main_us - before.main_us, after.total_us - before.total_us
        return Cost(main / item_count, total / item_count, item_count / elapsed)

    async def engine(self, queue_name: str = "bench", *, task_types: tuple[str, ...] | None = None) -> Engine:
        """An engine without limits and with a registered worker."""
        engine = assemble_engine(self.client, QueueSettings(queue_name=queue_name, admission=NO_LIMITS))
        await engine.queue.open()
        await engine.fleet.register(WorkerDeclaration(worker_id=WORKER, task_types=task_types, capacity=1_000))
        return engine


class Servers:
    """Starts stores of one kind under a folder; each ends with its `with` block."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._folder = folder
        self._binary = _binary(kind)
        self._count = 0

    @contextmanager
    def start(self, *, postgres: PostgresOptions | None = None) -> Generator[BenchServer]:
        self._count += 1
        folder, options = self._folder / str(self._count), ValkeyOptions(binary=self._binary, flags=QUIET)
        with EmbeddedStores(folder, valkey=options, postgres=postgres) as stores:
            yield BenchServer(stores.redis_url, stores.database_url if postgres else "")
        shutil.rmtree(folder, ignore_errors=True)


def _binary(kind: str) -> Path:
    found = bundled_valkey() if kind == "valkey" else shutil.which("redis-server")
    if not found:
        raise ServerNotInstalled(kind, "no program of this kind was found", "--store")
    return Path(found)
