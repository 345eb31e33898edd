"""History behind DATABASE_URL: is it there, is its schema this version's, does it keep up."""

import contextlib
import time
from collections.abc import AsyncIterator

from tideq.api.settings import ServiceSettings
from tideq.cli.checks.finding import Finding, fail, ok, warn
from tideq.persistence.archive import freshness_of
from tideq.persistence.database import READING, Database, UnsuitableDatabase
from tideq.persistence.recovery.custodians import custody_of
from tideq.persistence.recovery.custody import Verdict
from tideq.persistence.schema.clocks import MAX_DIFFERENCE_MS, database_now_ms
from tideq.persistence.schema.migrations import MigrationError, missing_migrations
from tideq.queue_core.engine.engine import assemble_engine
from tideq.queue_core.engine.identity import StoreIdentity
from tideq.queue_core.engine.store import connect
from tideq.queue_core.errors import QueueError

OLDEST_VERSION = 14_00_00
MAX_LAG_SECONDS = 60.0
MAX_SKEW_SECONDS = 5.0
VERSION = "SELECT current_setting('server_version'), current_setting('server_version_num')"


async def check_history(settings: ServiceSettings) -> AsyncIterator[Finding]:
    database = Database(settings.history.database_url, settings.queue.queue_name)
    try:
        yield await _check_server(database)
        yield await _check_clock(database)
        schema = await _check_schema(database)
        yield schema
        if schema.status == "ok":
            yield await _check_parked(database)
    except UnsuitableDatabase as error:
        yield fail("history", str(error), "then set DATABASE_URL to it, and run `tideq migrate`")
        return
    except QueueError as error:
        yield fail("history", str(error), "is DATABASE_URL right, and does the server run?")
        return
    if schema.status == "ok" and settings.redis_url:
        async with database:
            for finding in await _check_against_store(database, settings):
                yield finding


async def _check_server(database: Database) -> Finding:
    async with database.session(limits=READING) as connection:
        found = await connection.execute(VERSION)
        text, number = await found.fetchone() or ("", "0")
    if int(number) < OLDEST_VERSION:
        return fail("history", f"PostgreSQL {text} is too old", "run PostgreSQL 14 or later")
    return ok("history", f"PostgreSQL {text} answers")


async def _check_clock(database: Database) -> Finding:
    async with database.session(limits=READING) as connection:
        return check_clock(time.time() - await database_now_ms(connection) / 1000)


def check_clock(skew_seconds: float) -> Finding:
    found = f"{abs(skew_seconds):.0f} s {'behind' if skew_seconds > 0 else 'ahead of'} this one"
    if abs(skew_seconds) * 1000 > MAX_DIFFERENCE_MS:
        return fail("history clock", found, "let NTP set both: until they agree no old partition is dropped")
    if abs(skew_seconds) > MAX_SKEW_SECONDS:
        return warn("history clock", found, "let NTP set both")
    return ok("history clock", "agrees with this one")


async def _check_schema(database: Database) -> Finding:
    try:
        missing = await missing_migrations(database)
    except MigrationError as error:
        return fail("schema", str(error), "run the version of tideq that the database was migrated by, or a later one")
    if missing:
        names = ", ".join(f"{migration.number:04} {migration.name}" for migration in missing)
        return fail("schema", f"{len(missing)} migrations are missing: {names}", "run `tideq migrate`")
    return ok("schema", "up to date")


async def _check_parked(database: Database) -> Finding:
    async with database.session(limits=READING) as connection:
        found = await connection.execute("SELECT count(*), max(problem) FROM parked_events")
        count, problem = await found.fetchone() or (0, None)
    if count:
        advice = "history lacks these: see `tideq parked list`, and docs/runbook.md for what to do about them"
        return fail("parked events", f"{count}, one because: {problem}", advice)
    return ok("parked events", "none")


async def _check_against_store(database: Database, settings: ServiceSettings) -> list[Finding]:
    """A store that cannot be reached is told by its own checks."""
    queue = settings.queue
    try:
        client = connect(settings.redis_url)
    except ValueError:
        return []
    async with contextlib.aclosing(client):
        engine = assemble_engine(client, queue)
        freshness = freshness_of(database, client, engine)
        custodian = custody_of(database, client, queue, engine, StoreIdentity())
        try:
            return [
                check_verdict(await custodian.verdict()),
                check_lag(await freshness.lag_ms(time.time_ns() // 1_000_000) / 1000),
            ]
        except QueueError:
            return []


def check_verdict(verdict: Verdict) -> Finding:
    if verdict in (Verdict.REBUILD, Verdict.RECONCILE):
        verb = "rebuild" if verdict is Verdict.REBUILD else "reconcile"
        return fail(
            "store against history", verdict.value, f"the service does it when it starts; or run `tideq {verb}`"
        )
    return ok("store against history", verdict.value)


def check_lag(seconds: float) -> Finding:
    if seconds > MAX_LAG_SECONDS:
        return warn("replication", f"{seconds:.0f} s behind the queue", "run `tideq replicate`, and look at its log")
    return ok("replication", f"{seconds:.1f} s behind the queue")
