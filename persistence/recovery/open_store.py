"""An open store: the client, engine and guard that the service, the replicator and the monitor use.

With history, the store stays closed until it has been compared with history. Without history, a store that lost its
data is opened empty under a new epoch.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from tideq.persistence.database import READING, Database, check_url, statement
from tideq.persistence.recovery.store_guard import StoreGuard
from tideq.persistence.recovery.store_guards import StoreGuards, store_guards_of
from tideq.persistence.replication.batch import Batch
from tideq.persistence.replication.replicator import Replicator, Replicators
from tideq.persistence.schema.migrations import MigrationError, missing_migrations
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.duties import STORE_CHECK, Duties, Duty
from tideq.queue_core.engine import Engine, assemble_engine
from tideq.queue_core.errors import HistoryRefused, HistoryUnavailable, StoreFormatUnknown, StoreRefused, Unavailable
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.settings import QueueSettings, SettingsError
from tideq.queue_core.store.connect import connect, connect_reader
from tideq.queue_core.store.formats import check_formats
from tideq.queue_core.store.restore import CLOSED
from tideq.queue_core.store.server_identity import TrustedServers
from tideq.queue_core.store.side_data import read_format, stored_format

LONGEST_PAUSE_SECONDS = 1.0
"""Short, because the service is closed until the store is verified."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class OpenStore:
    client: Any
    engine: Engine
    database: Database | None
    guard: StoreGuard | StoreGuards | None
    unguarded_client: Any
    """Connects also to servers that are not verified."""


@contextlib.asynccontextmanager
async def replicators_of(
    store: OpenStore, redis_url: str, on_batch: Callable[[Batch], None] = lambda _: None, linger_ms: int = 0
) -> AsyncGenerator[Replicators]:
    if store.database is None:
        raise ValueError("replication needs DATABASE_URL")
    listener = connect_reader(redis_url, store.guard.identity if store.guard else None)
    async with contextlib.aclosing(listener):
        yield Replicators(
            [
                Replicator(
                    store.database,
                    part,
                    OutboxConsumer(store.client, part.keys, listener),
                    part.settings.partition,
                    on_batch,
                    linger_ms,
                )
                for part in store.engine.parts
            ]
        )


def unconnected_store(queue: QueueSettings) -> OpenStore:
    """Returns a store without connections, enough to describe a service: its routes and documentation."""
    return OpenStore(None, assemble_engine(None, queue), None, None, None)


@contextlib.asynccontextmanager
async def open_store(
    redis_url: str,
    queue: QueueSettings,
    history: HistorySettings,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    duties: Duties | None = None,
) -> AsyncGenerator[OpenStore]:
    """Yields the store, closed while the store or history is unavailable. Raises SettingsError for wrong settings."""
    duties = duties or Duties()
    if history.database_url:
        check_url(history.database_url)
        async with _open_with_history(redis_url, queue, history, on_progress, duties) as store:
            yield store
    else:
        async with _open_without(redis_url, queue, duties) as store:
            yield store


@contextlib.asynccontextmanager
async def _open_with_history(
    redis_url: str,
    queue: QueueSettings,
    history: HistorySettings,
    on_progress: Callable[[int, int], None],
    duties: Duties,
) -> AsyncGenerator[OpenStore]:
    identity = TrustedServers()
    client, plain = connect(redis_url, identity), connect(redis_url)
    engine = assemble_engine(client, queue)
    async with (
        contextlib.aclosing(client),
        contextlib.aclosing(plain),
        Database(history.database_url, queue.queue_name) as database,
    ):
        await _refuse_unknown_formats(plain, engine, database)
        guard = store_guards_of(database, plain, queue, engine, identity, on_progress)
        await _verify_or_stay_closed(guard, identity)
        await _align(engine)
        watching = duties.start(STORE_CHECK, guard.watch, LONGEST_PAUSE_SECONDS)
        try:
            async with _aligning(engine, duties):
                yield OpenStore(client, engine, database, guard, plain)
        finally:
            await duties.stop(watching)


async def _refuse_unknown_formats(client: Any, engine: Engine, database: Database | None = None) -> None:
    """Raises SettingsError. Skips what is unavailable: the scripts check the format at every call."""
    try:
        check_formats([await read_format(client, part.keys) for part in engine.parts])
        if database is not None:
            await missing_migrations(database, allow_newer=True)
            async with database.session(limits=READING) as connection:
                rows = await (await connection.execute(statement("recorded_formats"))).fetchall()
            recorded = [stored_format(content) for (content,) in rows]
            check_formats(number for number in recorded if number is not None)
    except (StoreFormatUnknown, MigrationError) as error:
        raise SettingsError(str(error)) from error
    except Unavailable as error:
        log.info("format not checked", error=str(error))


async def _align(engine: Engine) -> None:
    """Copies pauses and limits to new partitions before the store is used; unavailable ones keep their own."""
    try:
        await engine.controls.align()
    except Unavailable as error:
        log.warning("pauses and limits not aligned across partitions, retrying", error=str(error))


@contextlib.asynccontextmanager
async def _aligning(engine: Engine, duties: Duties) -> AsyncGenerator[None]:
    """Copies changed pauses and limits to partitions that were unavailable at the change, once they are back."""
    if len(engine.parts) == 1:
        yield
        return
    aligning = duties.start("alignment", engine.controls.keep_aligned)
    try:
        yield
    finally:
        await duties.stop(aligning)


async def _verify_or_stay_closed(guard: StoreGuard | StoreGuards, identity: TrustedServers) -> None:
    """Keeps the store closed if the comparison fails; the guard's `watch` opens it later."""
    try:
        await guard.verify()
    except Unavailable as error:
        _log_closed(error)
        identity.unverified.set()


def _log_closed(error: Unavailable) -> None:
    """Logs that the store stays closed. Raises SettingsError if a login was refused: waiting does not help then."""
    if isinstance(error, HistoryRefused) and error.is_login:
        raise SettingsError(f"DATABASE_URL: the database refuses the login: {error}") from error
    if isinstance(error, StoreRefused) and error.is_login:
        raise SettingsError(f"REDIS_URL: the store refuses the login: {error}") from error
    missing = "history" if isinstance(error, HistoryUnavailable) else "the store"
    log.error(f"closed, waiting for {missing}", error=str(error))


@contextlib.asynccontextmanager
async def _open_without(redis_url: str, queue: QueueSettings, duties: Duties) -> AsyncGenerator[OpenStore]:
    retention = msgspec.structs.replace(queue.retention, has_history=False)
    client = connect(redis_url)
    engine = assemble_engine(client, msgspec.structs.replace(queue, retention=retention))
    replaced = asyncio.Event()
    for part in engine.parts:
        part.scripts.on_replaced = replaced.set
    async with contextlib.aclosing(client):
        await _refuse_unknown_formats(client, engine)
        try:
            await _open(engine)
        except Unavailable as error:
            _log_closed(error)
            replaced.set()
        watching = duties.start(STORE_CHECK, partial(_reopen_when_replaced, engine, replaced), LONGEST_PAUSE_SECONDS)
        try:
            async with _aligning(engine, duties):
                yield OpenStore(client, engine, None, None, client)
        finally:
            await duties.stop(watching)


async def _open(engine: Engine, epoch: str | None = None) -> str:
    """Returns the epoch. Raises SettingsError for a store that an interrupted rebuild left closed and half filled."""
    found = await engine.queue.open(epoch)
    if found.startswith(CLOSED):
        engine.scripts.epoch = ""
        raise SettingsError(
            "DATABASE_URL is not set, and the store was left closed by an interrupted rebuild from history. Set "
            "DATABASE_URL to the database of that rebuild, to complete it"
        )
    return found


async def _reopen(part: Engine) -> None:
    before = part.scripts.epoch
    epoch = await _open(part, str(int(before) + 1) if before.isdigit() else None)
    if not before:
        log.info("store opened", epoch=epoch)
    elif epoch != before:
        log.error("store replaced, its tasks are lost: there is no history to rebuild it from", epoch=epoch)


async def _reopen_when_replaced(engine: Engine, replaced: asyncio.Event, duty: Duty) -> None:
    while True:
        if not replaced.is_set():
            duty.succeeded()
        with duty.waiting():
            await replaced.wait()
        replaced.clear()
        try:
            for part in engine.parts:
                await _reopen(part)
        except BaseException:
            replaced.set()
            raise
