"""Connections to one queue's history, and what their errors mean to the rest of the service.

A queue has a schema of its own, so that queues can share a database. Whoever connects finds it on the search path: no
statement names it. Behind a pooler that shares sessions this needs a database of the queue's own.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from functools import cache
from importlib import resources
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from tideq.queue_core.errors import HistoryRefused, HistoryUnavailable

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
CONNECT_SECONDS = 5
WAIT_SECONDS = 5.0
READ_TIMEOUT = "10s"
BY_INDEX = (
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; "
    "SET enable_sort = off; SET enable_incremental_sort = off; SET enable_hashjoin = off; SET enable_mergejoin = off; "
    "SET max_parallel_workers_per_gather = 0"
)
"""Whatever a reader asks for comes a page at a time in the order of an index. Planning that anew for every partition
would take longer than reading it, and a plan for unknown values is a bad guess unless it has no choice."""
MAX_READERS = 8
ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""A server whose machine vanished is noticed within half a minute."""
NOTICED = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
"""So is a client's, by the server, which gives its locks to others: left to itself it would wait two hours."""

LOGIN_REFUSED = re.compile(r'FATAL:  (?:password authentication failed for user|role ".*" does not exist)')
"""While a connection is being made the driver knows no code of an error, only its text; in another language than this
one it is a server that cannot be reached."""


def schema_name(queue_name: str) -> str:
    return "tideq" if queue_name == "default" else f"tideq_{queue_name}"


@cache
def statement(name: str) -> LiteralString:
    """One of the files under `queries/`."""
    text = (resources.files("tideq.persistence") / "queries" / f"{name}.sql").read_text()
    return cast("LiteralString", text)


class Database:
    """Use as an async context manager; it need not be reachable for that."""

    def __init__(self, url: str, queue_name: str = "default") -> None:
        self.schema = schema_name(queue_name)
        self._url = url
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            kwargs={"autocommit": True, "connect_timeout": CONNECT_SECONDS, **ALIVE},
            min_size=1,
            max_size=MAX_READERS,
            timeout=WAIT_SECONDS,
            open=False,
            configure=self._configure_reader,
            check=AsyncConnectionPool.check_connection,
        )

    async def __aenter__(self) -> "Database":
        await self._pool.open(wait=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close()

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[Connection]:
        """One of a few shared connections, for short statements."""
        with translated_errors():
            async with self._pool.connection() as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def session(self, max_seconds: float | None = None) -> AsyncGenerator[Connection]:
        """A connection of one's own, for locks and long work; given up after this time, where one is given.

        Giving up takes the driver up to five seconds more, in which it tries to cancel what the server is at.
        """
        with translated_errors():
            async with _at_most(max_seconds), self._connected() as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Connection]:
        connection = await psycopg.AsyncConnection[tuple[Any, ...]].connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, **cast("dict[str, Any]", ALIVE)
        )
        async with connection:
            await connection.execute(NOTICED)
            await self._choose_schema(connection)
            yield connection

    async def _configure_reader(self, connection: Connection) -> None:
        """The pool forgets a connection that cannot be made ready, and would leave it open."""
        try:
            await self._choose_schema(connection)
            await connection.execute("SELECT set_config('statement_timeout', %s, false)", (READ_TIMEOUT,))
            await connection.execute(BY_INDEX)
        except BaseException:
            await connection.close()
            raise

    async def _choose_schema(self, connection: Connection) -> None:
        await connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))


@contextlib.asynccontextmanager
async def _at_most(seconds: float | None) -> AsyncGenerator[None]:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise HistoryUnavailable(f"the database took longer than {seconds:g} seconds") from error
        raise


@contextlib.contextmanager
def translated_errors() -> Any:
    try:
        yield
    except psycopg.Error as error:
        raise translated(error) from error


def translated(error: psycopg.Error) -> HistoryUnavailable:
    """For any of the driver's errors, those of its pool among them.

    A server that cannot be reached, is starting, ends, has no room or gives up is unavailable; one that answers and
    will not do it refuses.
    """
    text = _first_line(error)
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return HistoryUnavailable("the database has no schema for this version: run `tideq migrate`")
    if isinstance(error, psycopg.errors.InvalidAuthorizationSpecification) or LOGIN_REFUSED.search(text):
        return HistoryRefused(text, is_login=True)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return HistoryUnavailable(text)
    return HistoryRefused(text)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
