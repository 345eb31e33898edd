"""A store in custody: what the service, the replicator and the monitor work on.

With history nobody is let in before the store has been compared with it. Without, a store that lost everything is
simply begun anew: there is nothing it could be compared with.
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
from tideq.persistence.recovery.custodians import Custodians, custody_of
from tideq.persistence.recovery.custody import Custodian
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.duties import CUSTODY, Duties, Duty
from tideq.queue_core.engine.belongings import kept_format, read_format
from tideq.queue_core.engine.engine import Engine, assemble_engine
from tideq.queue_core.engine.identity import StoreIdentity
from tideq.queue_core.engine.restoring import SEAL
from tideq.queue_core.engine.store import connect
from tideq.queue_core.engine.store_format import check_formats
from tideq.queue_core.errors import HistoryRefused, HistoryUnavailable, StoreRefused, StoreTooNew, Unavailable
from tideq.queue_core.settings import QueueSettings, SettingsError

LONGEST_PAUSE_SECONDS = 1.0
"""Until a store is settled nobody works."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class KeptStore:
    client: Any
    engine: Engine
    database: Database | None
    custodian: Custodian | Custodians | None
    plain_client: Any
    """Talks to any server that answers: for looking at what is not trusted yet."""


def unconnected(queue: QueueSettings) -> KeptStore:
    """Without any server: enough to describe what a service on it would do."""
    return KeptStore(None, assemble_engine(None, queue), None, None, None)


@contextlib.asynccontextmanager
async def open_kept_store(
    redis_url: str,
    queue: QueueSettings,
    history: HistorySettings,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    duties: Duties | None = None,
) -> AsyncGenerator[KeptStore]:
    """Closed where the store or history is away, until they are back; raises SettingsError for what waiting does not
    mend."""
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
) -> AsyncGenerator[KeptStore]:
    identity = StoreIdentity()
    client, plain = connect(redis_url, identity), connect(redis_url)
    engine = assemble_engine(client, queue)
    async with (
        contextlib.aclosing(client),
        contextlib.aclosing(plain),
        Database(history.database_url, queue.queue_name) as database,
    ):
        await _refuse_later_formats(plain, engine, database)
        custodian = custody_of(database, plain, queue, engine, identity, on_progress)
        await _settle_or_stay_closed(custodian, identity)
        await _align(engine)
        watching = duties.start(CUSTODY, custodian.watch, LONGEST_PAUSE_SECONDS)
        try:
            async with _aligning(engine, duties):
                yield KeptStore(client, engine, database, custodian, plain)
        finally:
            await duties.stop(watching)


async def _refuse_later_formats(client: Any, engine: Engine, database: Database | None = None) -> None:
    """Raises SettingsError. What cannot be asked just now is left to the scripts, which look at every call."""
    try:
        check_formats([await read_format(client, part.keys) for part in engine.parts])
        if database is not None:
            async with database.session(limits=READING) as connection:
                rows = await (await connection.execute(statement("recorded_formats"))).fetchall()
            kept = [kept_format(content) for (content,) in rows]
            check_formats(number for number in kept if number is not None)
    except StoreTooNew as error:
        raise SettingsError(str(error)) from error
    except Unavailable as error:
        log.info("format not compared", error=str(error))


async def _align(engine: Engine) -> None:
    """Of several partitions new ones learn which pauses and limits there are, before anybody works here."""
    try:
        await engine.controls.align()
    except Unavailable as error:
        log.warning("pauses and limits of all partitions could not be compared", error=str(error))


@contextlib.asynccontextmanager
async def _aligning(engine: Engine, duties: Duties) -> AsyncGenerator[None]:
    """A partition that was away when something was paused or limited, or no more so, learns of it when it is back."""
    if len(engine.parts) == 1:
        yield
        return
    aligning = duties.start("alignment", engine.controls.keep_aligned)
    try:
        yield
    finally:
        await duties.stop(aligning)


async def _settle_or_stay_closed(custodian: Custodian | Custodians, identity: StoreIdentity) -> None:
    """Where nothing can be compared the service answers that it is closed, and opens as soon as it can."""
    try:
        await custodian.settle()
    except Unavailable as error:
        _tell_closed(error)
        identity.doubt.set()


def _tell_closed(error: Unavailable) -> None:
    """Raises SettingsError where it is the settings' fault."""
    if isinstance(error, HistoryRefused) and error.is_login:
        raise SettingsError(f"DATABASE_URL: the database does not let this process in: {error}") from error
    if isinstance(error, StoreRefused) and error.is_login:
        raise SettingsError(f"REDIS_URL: the store does not let this process in: {error}") from error
    missing = "history" if isinstance(error, HistoryUnavailable) else "the store"
    log.error(f"closed, waiting for {missing}", error=str(error))


@contextlib.asynccontextmanager
async def _open_without(redis_url: str, queue: QueueSettings, duties: Duties) -> AsyncGenerator[KeptStore]:
    retention = msgspec.structs.replace(queue.retention, has_history=False)
    client = connect(redis_url)
    engine = assemble_engine(client, msgspec.structs.replace(queue, retention=retention))
    doubt = asyncio.Event()
    for part in engine.parts:
        part.scripts.on_replaced = doubt.set
    async with contextlib.aclosing(client):
        await _refuse_later_formats(client, engine)
        try:
            await _open(engine)
        except Unavailable as error:
            _tell_closed(error)
            doubt.set()
        watching = duties.start(CUSTODY, partial(_begin_anew_for_ever, engine, doubt), LONGEST_PAUSE_SECONDS)
        try:
            async with _aligning(engine, duties):
                yield KeptStore(client, engine, None, None, client)
        finally:
            await duties.stop(watching)


async def _open(engine: Engine, epoch: str | None = None) -> str:
    """Raises SettingsError for a store that somebody left closed: what it holds is half of something."""
    found = await engine.queue.open(epoch)
    if found.startswith(SEAL):
        engine.scripts.epoch = ""
        raise SettingsError(
            "DATABASE_URL is not set, and the store was left closed in the middle of a rebuild from history: only with "
            "history can it be completed. Set DATABASE_URL to the database the rebuild was from"
        )
    return found


async def _begin_anew(part: Engine) -> None:
    before = part.scripts.epoch
    epoch = await _open(part, str(int(before) + 1) if before.isdigit() else None)
    if not before:
        log.info("store opened", epoch=epoch)
    elif epoch != before:
        log.error("the store was replaced, and there is no history to rebuild it from", epoch=epoch)


async def _begin_anew_for_ever(engine: Engine, doubt: asyncio.Event, duty: Duty) -> None:
    while True:
        if not doubt.is_set():
            duty.succeeded()
        with duty.waiting():
            await doubt.wait()
        doubt.clear()
        try:
            for part in engine.parts:
                await _begin_anew(part)
        except BaseException:
            doubt.set()
            raise
