"""Starts the stores of one turn: a fresh Valkey, or a fresh database on the run's PostgreSQL; reads their CPU.

All peers get the same servers with the same settings: the Valkey of the wheel over TCP on loopback, with its
append-only file (`everysec`) by default; the PostgreSQL of the wheel over its socket with its defaults, so that every
commit is on disk.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from bench.history.stores import PostgresCpu
from bench.http.echo import free_port
from bench.server import QUIET, process_cpu_us
from tideq.embedded import EmbeddedStores, PostgresOptions, ValkeyOptions, bundled_valkey, find_running
from tideq.queue_core.store.connect import connect

SETTLE_SECONDS = 0.05


class Valkey(NamedTuple):
    url: str
    pid: int

    def cpu_us(self) -> float:
        return process_cpu_us(self.pid)

    async def used_bytes(self) -> int:
        client: Any = connect(self.url)
        await asyncio.sleep(SETTLE_SECONDS)
        used = (await client.info("memory"))["used_memory"]
        await client.aclose()
        return used


class Postgres(NamedTuple):
    url: str
    postmaster: int

    def cpu_us(self) -> float:
        return PostgresCpu(self.postmaster).us()

    async def used_bytes(self) -> int:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            found = await (await connection.execute("SELECT pg_database_size(current_database())")).fetchone()
        return found[0] if found else 0


@contextlib.contextmanager
def valkey(folder: Path, *, has_aof: bool) -> Generator[Valkey]:
    port = free_port()
    flags = (*QUIET, "--appendonly", "yes" if has_aof else "no")
    with EmbeddedStores(
        folder, valkey=ValkeyOptions(binary=bundled_valkey(), port=port, flags=flags), postgres=None
    ) as stores:
        running = find_running(folder)
        assert running is not None
        yield Valkey(stores.redis_url, running.server_pids[0])
    shutil.rmtree(folder, ignore_errors=True)


class PostgresServer:
    """The run's server; every turn has a database of its own."""

    def __init__(self, url: str) -> None:
        self._url, self._count = url, 0

    @contextlib.asynccontextmanager
    async def database(self) -> AsyncGenerator[Postgres]:
        self._count += 1
        name = sql.Identifier(f"turn{self._count}")
        async with await psycopg.AsyncConnection.connect(self._url, autocommit=True) as connection:
            await connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
            try:
                yield Postgres(_database_url(self._url, f"turn{self._count}"), await _postmaster(connection))
            finally:
                await connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
                await connection.execute("CHECKPOINT")


@contextlib.contextmanager
def postgres_server(folder: Path) -> Generator[PostgresServer]:
    with EmbeddedStores(folder, valkey=None, postgres=PostgresOptions()) as stores:
        yield PostgresServer(stores.database_url)


def _database_url(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


async def _postmaster(connection: psycopg.AsyncConnection[Any]) -> int:
    found = await (
        await connection.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")
    ).fetchone()
    assert found is not None
    return _parent(found[0])


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
