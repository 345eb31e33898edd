"""Connections to one queue's history, and the translation of driver errors into the service's errors.

Each queue has its own schema, so queues can share a database. Sessions set it as search path; no statement names it.
Limit: behind a pooler that shares sessions, each queue needs its own database.
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
"""The pool retries this long with doubling pauses; the next reader starts it again. With the pool's default, readers
would wait up to two minutes."""
BY_INDEX = (
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; "
    "SET enable_sort = off; SET enable_incremental_sort = off; SET enable_hashjoin = off; SET enable_mergejoin = off; "
    "SET max_parallel_workers_per_gather = 0"
)
"""Readers fetch pages in the order of an index. A custom plan for every partition takes longer than the page, and a
generic plan is only good where no other plan is allowed."""
MAX_READERS = 8
CLOSING_SECONDS = 0.2
"""Closing does not wait for a connection attempt to a server that does not respond."""
ENCODING = "UTF8"
MAX_NAME_BYTES = 63
"""PostgreSQL truncates longer names without an error, and two queues could share one schema."""
IDLE_SESSIONS_VERSION, WHOLE_TRANSACTIONS_VERSION = 14_00_00, 17_00_00
"""The first PostgreSQL versions with `idle_session_timeout` and `transaction_timeout`."""
KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""A server whose machine vanished is detected within 30 seconds."""
CONNECTION_OPTIONS = {"connect_timeout": CONNECT_SECONDS, "client_encoding": ENCODING, **KEEPALIVE}
"""The encoding is fixed because rows are copied as bytes: the default of a role or environment would corrupt them."""
SERVER_KEEPALIVE = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
"""The server detects a vanished client as quickly and frees its locks; its default would be two hours."""

LOGIN_REFUSED = re.compile(r'FATAL:  (?:password authentication failed for user|role ".*" does not exist)')
"""The driver has no error code while it connects, only the text. A refused login in another language than English
counts as an unreachable server."""


class SessionLimits(NamedTuple):
    """Timeouts of a session in milliseconds, which override those of role, database and server; 0 for none."""

    statement_ms: int
    lock_ms: int
    idle_in_transaction_ms: int


READING = SessionLimits(statement_ms=10_000, lock_ms=5_000, idle_in_transaction_ms=60_000)
"""A caller waits for the reply."""
WRITING = SessionLimits(statement_ms=60_000, lock_ms=20_000, idle_in_transaction_ms=60_000)
"""For batches. The lock timeout is shorter, so that a cancelled statement means a batch that is too large."""
WAITING = SessionLimits(statement_ms=0, lock_ms=0, idle_in_transaction_ms=60_000)
"""For a process that waits for the lock of the active one."""
REPAIRING = SessionLimits(statement_ms=600_000, lock_ms=60_000, idle_in_transaction_ms=0)
"""Reads all live tasks from a cursor, and calls the store between two pages."""
MIGRATING = SessionLimits(statement_ms=0, lock_ms=30_000, idle_in_transaction_ms=0)
"""An index on a large table takes as long as it takes."""


class HistoryBusy(HistoryUnavailable):
    """Another session kept the lock for longer than this session's lock timeout."""


class TookTooLong(HistoryUnavailable):
    """The session, or one of its statements, reached its time limit."""


class UnsuitableDatabase(HistoryUnavailable):
    """The database can never hold history, so a retry does not help."""


def schema_name(queue_name: str) -> str:
    name = "tideq" if queue_name == "default" else f"tideq_{queue_name}"
    if len(name.encode()) > MAX_NAME_BYTES:
        raise SettingsError(
            f"TIDEQ_QUEUE: {queue_name!r} is too long: its schema {name!r} would have more than {MAX_NAME_BYTES} bytes"
        )
    return name


@cache
def statement(name: str) -> LiteralString:
    """Returns the text of `queries/<name>.sql`."""
    text = (resources.files("tideq.persistence") / "queries" / f"{name}.sql").read_text()
    return cast("LiteralString", text)


def compose(name: str, **parts: sql.Composable) -> LiteralString:
    """Returns `queries/<name>.sql` with parts that cannot be parameters, such as columns, orders and limits.

    The query's comment names them too, and is left out.
    """
    lines = [line for line in statement(name).splitlines() if not line.startswith("--")]
    query = sql.SQL(cast("LiteralString", "\n".join(lines)))
    return cast("LiteralString", query.format(**parts).as_string(None))


def check_url(url: str) -> None:
    """Raises SettingsError, without the URL: it holds a password."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise SettingsError(
            "DATABASE_URL cannot be parsed: write it like postgresql://user:password@host:5432/database"
        ) from error


class Database:
    """Use as an async context manager; the server may be unreachable at that time."""

    def __init__(self, url: str, queue_name: str = "default") -> None:
        self.schema = schema_name(queue_name)
        self._url = url
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            url,
            kwargs={"autocommit": True, **CONNECTION_OPTIONS},
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
        """Yields one of MAX_READERS pooled connections, for short statements. Raises HistoryUnavailable."""
        with translated_errors():
            async with self._pool.connection() as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def session(
        self, max_seconds: float | None = None, limits: SessionLimits = REPAIRING
    ) -> AsyncGenerator[Connection]:
        """Yields a new connection, for locks and long work. Raises HistoryUnavailable, also after `max_seconds`.

        The driver takes up to five seconds more than that to cancel the running statement.
        """
        with translated_errors():
            async with _time_limit(max_seconds), self._connected(limits) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def _connected(self, limits: SessionLimits) -> AsyncGenerator[Connection]:
        connection = await psycopg.AsyncConnection[tuple[Any, ...]].connect(
            self._url, autocommit=True, **cast("dict[str, Any]", CONNECTION_OPTIONS)
        )
        async with connection:
            await connection.execute(SERVER_KEEPALIVE)
            await self._prepare(connection, limits)
            yield connection

    async def _configure_reader(self, connection: Connection) -> None:
        """Closes a connection whose set-up fails: the pool would drop it and leave it open."""
        try:
            await self._prepare(connection, READING)
            await connection.execute(BY_INDEX)
        except BaseException:
            await connection.close()
            raise

    async def _prepare(self, connection: Connection, limits: SessionLimits) -> None:
        check_encoding(connection.info.parameter_status("server_encoding") or "")
        await connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema)))
        await limit(connection, limits)


async def limit(connection: Connection, limits: SessionLimits) -> None:
    """Sets the timeouts from now on, and turns off those that would end an idle session or a long transaction."""
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
    """Turns off the idle timeout for the present transaction: it keeps its rows locked during calls of the store."""
    await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")


def check_encoding(encoding: str) -> None:
    """Raises UnsuitableDatabase: another encoding cannot hold all texts, or returns them as bytes."""
    if encoding != ENCODING:
        raise UnsuitableDatabase(
            f"the database's encoding is {encoding or 'unknown'} and must be {ENCODING}: create another database with "
            f"`CREATE DATABASE … ENCODING '{ENCODING}' TEMPLATE template0`"
        )


@contextlib.asynccontextmanager
async def _time_limit(seconds: float | None) -> AsyncGenerator[None]:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TookTooLong(f"the database did not finish within {seconds:g} seconds") from error
        raise


@contextlib.contextmanager
def translated_errors() -> Any:
    try:
        yield
    except psycopg.Error as error:
        raise translated(error) from error


def translated(error: psycopg.Error) -> HistoryUnavailable:
    """Returns the service's error for an error of the driver or its pool.

    HistoryUnavailable: the server is unreachable, starting, stopping, full, or timed out. HistoryRefused: the server
    replied with a refusal.
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
