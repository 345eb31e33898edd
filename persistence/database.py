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
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool

from tideq.queue_core.errors import HistoryRefused, HistoryUnavailable
from tideq.queue_core.settings import SettingsError

Connection = psycopg.AsyncConnection[tuple[Any, ...]]
CONNECT_SECONDS = 5
WAIT_SECONDS = 5.0
RECONNECT_SECONDS = 4.0
"""How long the pool goes on trying by itself, doubling its pauses; then it begins anew with the next reader. Left to
itself it would pause for two minutes after some minutes without a server, and readers with it."""
BY_INDEX = (
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; "
    "SET enable_sort = off; SET enable_incremental_sort = off; SET enable_hashjoin = off; SET enable_mergejoin = off; "
    "SET max_parallel_workers_per_gather = 0"
)
"""Whatever a reader asks for comes a page at a time in the order of an index. Planning that anew for every partition
would take longer than reading it, and a plan for unknown values is a bad guess unless it has no choice."""
MAX_READERS = 8
CLOSING_SECONDS = 0.2
"""A connection that is being made to a server that says nothing is not waited for: whoever leaves, leaves at once."""
ENCODING = "UTF8"
MAX_NAME_BYTES = 63
"""PostgreSQL cuts longer names without a word, so that two queues could share one schema."""
IDLE_SESSIONS_VERSION, WHOLE_TRANSACTIONS_VERSION = 14_00_00, 17_00_00
"""The first PostgreSQL that knows `idle_session_timeout`, and `transaction_timeout`."""
ALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""A server whose machine vanished is noticed within half a minute."""
CONNECTING = {"connect_timeout": CONNECT_SECONDS, "client_encoding": ENCODING, **ALIVE}
"""The encoding because rows are copied as bytes: a role's or an environment's own would garble them."""
NOTICED = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
"""So is a client's, by the server, which gives its locks to others: left to itself it would wait two hours."""

LOGIN_REFUSED = re.compile(r'FATAL:  (?:password authentication failed for user|role ".*" does not exist)')
"""While a connection is being made the driver knows no code of an error, only its text; in another language than this
one it is a server that cannot be reached."""


class Limits(NamedTuple):
    """How long a session may take, in milliseconds, whatever its role, database or server say; 0 for any time."""

    statement_ms: int
    lock_ms: int
    idle_in_transaction_ms: int


READING = Limits(statement_ms=10_000, lock_ms=5_000, idle_in_transaction_ms=60_000)
"""A caller waits for the answer."""
WRITING = Limits(statement_ms=60_000, lock_ms=20_000, idle_in_transaction_ms=60_000)
"""A batch and its like. A lock is given up before a statement is cancelled: only there a smaller batch helps."""
WAITING = Limits(statement_ms=0, lock_ms=0, idle_in_transaction_ms=60_000)
"""For the turn of a process of which one at a time works."""
MENDING = Limits(statement_ms=600_000, lock_ms=60_000, idle_in_transaction_ms=0)
"""Reads all that is live from a cursor, and talks to the store between two pages."""
MIGRATING = Limits(statement_ms=0, lock_ms=30_000, idle_in_transaction_ms=0)
"""An index on a large table takes as long as it takes."""


class HistoryBusy(HistoryUnavailable):
    """A lock that somebody else has was waited for as long as this session waits."""


class TookTooLong(HistoryUnavailable):
    """More time than this session, or one statement of it, has."""


class UnsuitableDatabase(HistoryUnavailable):
    """No waiting makes this database fit for history."""


def schema_name(queue_name: str) -> str:
    name = "tideq" if queue_name == "default" else f"tideq_{queue_name}"
    if len(name.encode()) > MAX_NAME_BYTES:
        raise SettingsError(
            f"TIDEQ_QUEUE: {queue_name!r} is too long: its schema {name!r} would have more than {MAX_NAME_BYTES} bytes"
        )
    return name


@cache
def statement(name: str) -> LiteralString:
    """One of the files under `queries/`."""
    text = (resources.files("tideq.persistence") / "queries" / f"{name}.sql").read_text()
    return cast("LiteralString", text)


def check_url(url: str) -> None:
    """The text itself is not repeated: it holds a password."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise SettingsError(
            "DATABASE_URL cannot be read: it is written like postgresql://user:password@host:5432/database"
        ) from error


class Database:
    """Use as an async context manager; it need not be reachable for that."""

    def __init__(self, url: str, queue_name: str = "default") -> None:
        self.schema = schema_name(queue_name)
        self._url = url
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            kwargs={"autocommit": True, **CONNECTING},
            min_size=1,
            max_size=MAX_READERS,
            timeout=WAIT_SECONDS,
            reconnect_timeout=RECONNECT_SECONDS,
            open=False,
            configure=self._configure_reader,
            check=AsyncConnectionPool.check_connection,
        )

    async def __aenter__(self) -> "Database":
        await self._pool.open(wait=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(CLOSING_SECONDS)

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[Connection]:
        """One of a few shared connections, for short statements."""
        with translated_errors():
            async with self._pool.connection() as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def session(self, max_seconds: float | None = None, limits: Limits = MENDING) -> AsyncGenerator[Connection]:
        """A connection of one's own, for locks and long work; given up after this time, where one is given.

        Giving up takes the driver up to five seconds more, in which it tries to cancel what the server is at.
        """
        with translated_errors():
            async with _at_most(max_seconds), self._connected(limits) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def _connected(self, limits: Limits) -> AsyncGenerator[Connection]:
        connection = await psycopg.AsyncConnection[tuple[Any, ...]].connect(
            self._url, autocommit=True, **cast("dict[str, Any]", CONNECTING)
        )
        async with connection:
            await connection.execute(NOTICED)
            await self._prepare(connection, limits)
            yield connection

    async def _configure_reader(self, connection: Connection) -> None:
        """The pool forgets a connection that cannot be made ready, and would leave it open."""
        try:
            await self._prepare(connection, READING)
            await connection.execute(BY_INDEX)
        except BaseException:
            await connection.close()
            raise

    async def _prepare(self, connection: Connection, limits: Limits) -> None:
        check_encoding(connection.info.parameter_status("server_encoding") or "")
        await connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))
        await limit(connection, limits)


async def limit(connection: Connection, limits: Limits) -> None:
    """From now on. What else may end a session or a transaction in the middle is switched off."""
    chosen = {
        "statement_timeout": limits.statement_ms,
        "lock_timeout": limits.lock_ms,
        "idle_in_transaction_session_timeout": limits.idle_in_transaction_ms,
    }
    if connection.info.server_version >= IDLE_SESSIONS_VERSION:
        chosen["idle_session_timeout"] = 0
    if connection.info.server_version >= WHOLE_TRANSACTIONS_VERSION:
        chosen["transaction_timeout"] = 0
    settings = [sql.SQL("SET {} = {}").format(sql.Identifier(name), value) for name, value in chosen.items()]
    await connection.execute(sql.SQL("; ").join(settings))


async def stay_in_transaction(connection: Connection) -> None:
    """Until the present transaction ends it may be idle for any time: its rows are held while the store is asked."""
    await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")


def check_encoding(encoding: str) -> None:
    """In any other encoding some texts cannot be kept, or come back as bytes."""
    if encoding != ENCODING:
        raise UnsuitableDatabase(
            f"the database's encoding is {encoding or 'unknown'} and must be {ENCODING}: create another with "
            f"`CREATE DATABASE … ENCODING '{ENCODING}' TEMPLATE template0`"
        )


@contextlib.asynccontextmanager
async def _at_most(seconds: float | None) -> AsyncGenerator[None]:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TookTooLong(f"the database took longer than {seconds:g} seconds") from error
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
    if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
        return HistoryBusy(text)
    if isinstance(error, psycopg.errors.QueryCanceled):
        return TookTooLong(text)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return HistoryUnavailable(text)
    return HistoryRefused(text)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
