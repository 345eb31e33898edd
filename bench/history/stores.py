"""Starts a store and a migrated history for the benchmark, and reads the CPU of PostgreSQL."""

import contextlib
import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

from bench.figures import Findings
from bench.server import NO_LIMITS, BenchServer, Servers, process_cpu_us
from tideq.embedded import PostgresOptions
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.settings import QueueSettings

QUEUE = "bench"
FLAGS = ("-c", "track_commit_timestamp=on")
"""The wheel's defaults, plus commit times of rows, from which the lag is measured."""
PARENT, CHILDREN_CPU = 1, slice(13, 15)
TICKS = os.sysconf("SC_CLK_TCK")


class Stores(NamedTuple):
    server: BenchServer
    database_url: str
    database: Database
    queue_name: str

    @property
    def queue(self) -> QueueSettings:
        return QueueSettings(queue_name=self.queue_name, admission=NO_LIMITS)

    @property
    def history(self) -> HistorySettings:
        return HistorySettings(database_url=self.database_url)

    def opened(self) -> contextlib.AbstractAsyncContextManager[OpenStore]:
        return open_store(self.server.url, self.queue, self.history)

    async def rows(self, query: LiteralString, *parameters: object) -> list[tuple[Any, ...]]:
        async with self.database.session() as connection:
            return await (await connection.execute(query, parameters)).fetchall()


@contextlib.asynccontextmanager
async def history_stores(servers: Servers, weeks: int = 0, flags: tuple[str, ...] = ()) -> AsyncGenerator[Stores]:
    """Migrated, with partitions for `weeks` weeks back, and opened once, so that the store is in sync afterwards."""
    options = PostgresOptions(flags=(*FLAGS, *flags))
    with servers.start(postgres=options) as server:
        async with Database(server.database_url, QUEUE) as database:
            stores = Stores(server, server.database_url, database, QUEUE)
            await migrate(database)
            for week in range(weeks, -1, -1):
                now_ms = time.time_ns() // 1_000_000
                await Partitions(database, stores.history).make_ahead(now_ms - week * stores.history.partition_ms)
            async with stores.opened():
                pass
            yield stores


class Rated(NamedTuple):
    """Findings, and their best rate of all rounds, with which other rates are compared."""

    findings: Findings
    tasks_per_second: float


class PostgresCpu(NamedTuple):
    """CPU of all processes of a server, including those that have ended."""

    postmaster: int

    def us(self) -> float:
        ended = sum(_stat(self.postmaster)[CHILDREN_CPU]) / TICKS * 1e6
        return ended + sum(map(process_cpu_us, (self.postmaster, *_children(self.postmaster))))


async def postgres_cpu(stores: Stores) -> PostgresCpu:
    ((backend,),) = await stores.rows("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
    return PostgresCpu(_stat(backend)[PARENT])


def _children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _stat(pid: int) -> list[int]:
    """The fields of `/proc/<pid>/stat` after the name; 0 for fields that are not numbers."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) if field.lstrip("-").isdigit() else 0 for field in fields]
