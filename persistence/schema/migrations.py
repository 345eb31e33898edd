"""Numbered SQL files, each applied once, in order, by one process at a time.

A file that was applied is never edited: its digest is kept and compared. A change is a new file, and `schema.sql` shows
what all of them add up to.
"""

import asyncio
import hashlib
from importlib import resources
from typing import Any, LiteralString, NamedTuple, cast

import structlog
from psycopg import errors, sql

from tideq.persistence.database import MIGRATING, WRITING, Connection, Database, UnsuitableDatabase
from tideq.queue_core.errors import HistoryRefused, HistoryUnavailable
from tideq.queue_core.repeats import Repeats

LOCK = 7_305_001
"""Of PostgreSQL's advisory locks, which share one space of numbers with the application's."""
RETRY_SECONDS = 0.5
TELL_AGAIN_SECONDS = 300.0

log = structlog.get_logger(__name__)


class Migration(NamedTuple):
    number: int
    name: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


class MigrationError(RuntimeError):
    """The database is not what the migrations made of it."""


def known_migrations() -> list[Migration]:
    folder = resources.files("tideq.persistence") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [_migration(file) for file in files]


def _migration(file: Any) -> Migration:
    number, _, name = file.name.removesuffix(".sql").partition("_")
    return Migration(int(number), name, file.read_text())


async def migrate(database: Database, *, allow_newer: bool = False) -> list[Migration]:
    """Bring the schema up to date; returns what was applied. Safe to run from many processes at once."""
    async with database.session(limits=MIGRATING) as connection:
        await connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, database.schema))
        await _found(connection, database.schema)
        missing = _missing(await _applied(connection), allow_newer=allow_newer)
        for migration in missing:
            await _apply(connection, migration)
        return missing


async def missing_migrations(database: Database, *, allow_newer: bool = False) -> list[Migration]:
    async with database.session(limits=WRITING) as connection:
        return _missing(await _applied(connection), allow_newer=allow_newer)


async def missing_when_migrated(database: Database, seconds: float, *, allow_newer: bool = False) -> list[Migration]:
    """Wait for somebody else to migrate; what is still missing when the time is up.

    Raises at once what no waiting mends: a login that is refused, a database that will not do.
    """
    deadline, told = asyncio.get_running_loop().time() + seconds, Repeats(TELL_AGAIN_SECONDS)
    while True:
        try:
            missing = await missing_migrations(database, allow_newer=allow_newer)
            if not missing or asyncio.get_running_loop().time() >= deadline:
                return missing
            if told.is_news("migration"):
                log.warning("waiting for the migration", missing=[f"{each.number:04} {each.name}" for each in missing])
        except UnsuitableDatabase:
            raise
        except HistoryUnavailable as error:
            is_refused = isinstance(error, HistoryRefused) and error.is_login
            if is_refused or asyncio.get_running_loop().time() >= deadline:
                raise
            tell_waiting(error, told)
        await asyncio.sleep(RETRY_SECONDS)


async def migrate_when_reachable(database: Database, seconds: float, *, allow_newer: bool = False) -> list[Migration]:
    """Wait for a database that is still starting; the last refusal is raised when the time is up."""
    deadline, told = asyncio.get_running_loop().time() + seconds, Repeats(TELL_AGAIN_SECONDS)
    while True:
        try:
            return await migrate(database, allow_newer=allow_newer)
        except UnsuitableDatabase:
            raise
        except HistoryUnavailable as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            tell_waiting(error, told)
            await asyncio.sleep(RETRY_SECONDS)


def tell_waiting(error: HistoryUnavailable, told: Repeats) -> None:
    if told.is_news(str(error)):
        log.warning("waiting for the database", error=str(error))


async def _found(connection: Connection, schema: str) -> None:
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
    known = known_migrations()
    for migration in known:
        if applied.get(migration.number, migration.digest) != migration.digest:
            raise MigrationError(f"migration {migration.number:04} {migration.name} was changed after it was applied")
    newer = applied.keys() - {migration.number for migration in known}
    if newer and not allow_newer:
        raise MigrationError(f"the database has migration {max(newer):04}, which this version does not know")
    return [migration for migration in known if migration.number not in applied]


async def _apply(connection: Connection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(cast("LiteralString", migration.text))
        await connection.execute(
            "INSERT INTO migrations (number, name, digest) VALUES (%s, %s, %s)",
            (migration.number, migration.name, migration.digest),
        )
