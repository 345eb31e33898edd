"""Migrations: numbered SQL files, each applied once, in order, by one process at a time.

An applied file is never edited: its digest is stored and compared. A change is a new file, and `schema.sql` shows the
sum of all.
"""

import asyncio
import hashlib
from importlib import resources
from typing import Any, LiteralString, NamedTuple, cast

import structlog
from psycopg import errors, sql

from tideq.persistence.database import MIGRATING, WRITING, Connection, Database, UnsuitableDatabase
from tideq.queue_core.errors import HistoryRefused, HistoryUnavailable
from tideq.queue_core.log_once import LogOnce

LOCK = 7_305_001
"""An advisory lock of PostgreSQL; applications in the same database use the same number space."""
RETRY_SECONDS = 0.5
LOG_AGAIN_SECONDS = 300.0

log = structlog.get_logger(__name__)


class Migration(NamedTuple):
    number: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


class MigrationError(RuntimeError):
    """The database's migrations are not those of this version."""


def shipped_migrations() -> list[Migration]:
    folder = resources.files("tideq.persistence") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [_migration(file) for file in files]


def _migration(file: Any) -> Migration:
    number, _, name = file.name.removesuffix(".sql").partition("_")
    return Migration(int(number), name, file.read_text())


async def migrate(database: Database, *, allow_newer: bool = False) -> list[Migration]:
    """Returns the migrations that were applied. Raises MigrationError. Safe to run from many processes at once."""
    async with database.session(limits=MIGRATING) as connection:
        await connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, database.schema))
        await _create_schema(connection, database.schema)
        missing = _missing(await _applied(connection), allow_newer=allow_newer)
        for migration in missing:
            await _apply(connection, migration)
        return missing


async def missing_migrations(database: Database, *, allow_newer: bool = False) -> list[Migration]:
    async with database.session(limits=WRITING) as connection:
        return _missing(await _applied(connection), allow_newer=allow_newer)


async def missing_when_migrated(database: Database, seconds: float, *, allow_newer: bool = False) -> list[Migration]:
    """Waits for another process to migrate; returns the migrations that are still missing after `seconds`.

    Raises at once if waiting does not help: a login is refused, or the database is unsuitable.
    """
    deadline, log_once = asyncio.get_running_loop().time() + seconds, LogOnce(LOG_AGAIN_SECONDS)
    while True:
        try:
            missing = await missing_migrations(database, allow_newer=allow_newer)
            if not missing or asyncio.get_running_loop().time() >= deadline:
                return missing
            if log_once.is_new("migration"):
                log.warning("waiting for the migration", missing=[f"{each.number:04} {each.name}" for each in missing])
        except UnsuitableDatabase:
            raise
        except HistoryUnavailable as error:
            is_refused = isinstance(error, HistoryRefused) and error.is_login
            if is_refused or asyncio.get_running_loop().time() >= deadline:
                raise
            log_waiting(error, log_once)
        await asyncio.sleep(RETRY_SECONDS)


async def migrate_when_reachable(database: Database, seconds: float, *, allow_newer: bool = False) -> list[Migration]:
    """Waits for a database that is still starting, then migrates it. Raises its last error after `seconds`."""
    deadline, log_once = asyncio.get_running_loop().time() + seconds, LogOnce(LOG_AGAIN_SECONDS)
    while True:
        try:
            return await migrate(database, allow_newer=allow_newer)
        except UnsuitableDatabase:
            raise
        except HistoryUnavailable as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            log_waiting(error, log_once)
            await asyncio.sleep(RETRY_SECONDS)


def log_waiting(error: HistoryUnavailable, log_once: LogOnce) -> None:
    if log_once.is_new(str(error)):
        log.warning("waiting for the database", error=str(error))


async def _create_schema(connection: Connection, schema: str) -> None:
    await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, name text NOT NULL, digest text NOT NULL, "
        "applied_at timestamptz NOT NULL DEFAULT now())"
    )


async def _applied(connection: Connection) -> dict[int, str]:
    try:
        rows = await (await connection.execute("SELECT number, digest FROM migrations")).fetchall()
    except errors.UndefinedTable:
        return {}
    return dict(rows)


def _missing(applied: dict[int, str], *, allow_newer: bool) -> list[Migration]:
    shipped = shipped_migrations()
    for migration in shipped:
        if applied.get(migration.number, migration.digest) != migration.digest:
            raise MigrationError(
                f"the database's migration {migration.number:04} {migration.name} is not this version's: run the "
                "version that applied it, or begin with an empty database or data folder"
            )
    newer = applied.keys() - {migration.number for migration in shipped}
    if newer and not allow_newer:
        raise MigrationError(
            f"the database has migration {max(newer):04}, which this version lacks: run a later version of tideq"
        )
    return [migration for migration in shipped if migration.number not in applied]


async def _apply(connection: Connection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(cast("LiteralString", migration.text))
        await connection.execute(
            "INSERT INTO migrations (number, name, digest) VALUES (%s, %s, %s)",
            (migration.number, migration.name, migration.digest),
        )
