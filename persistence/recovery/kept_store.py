"""A store in custody: what the service, the replicator and the monitor work on.

With history nobody is let in before the store has been compared with it. Without, a store that lost everything is
simply begun anew: there is nothing it could be compared with.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from tideq.persistence.database import Database
from tideq.persistence.recovery.custodians import Custodians, custody_of
from tideq.persistence.recovery.custody import Custodian
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.background import running
from tideq.queue_core.engine.engine import Engine, assemble_engine
from tideq.queue_core.engine.identity import StoreIdentity
from tideq.queue_core.engine.restoring import SEAL
from tideq.queue_core.engine.store import connect
from tideq.queue_core.errors import HistoryUnavailable, QueueError, Unavailable
from tideq.queue_core.settings import QueueSettings, SettingsError

RETRY_SECONDS = 0.25

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
) -> AsyncGenerator[KeptStore]:
    if history.database_url:
        async with _open_with_history(redis_url, queue, history, on_progress) as store:
            yield store
    else:
        async with _open_without(redis_url, queue) as store:
            yield store


@contextlib.asynccontextmanager
async def _open_with_history(
    redis_url: str, queue: QueueSettings, history: HistorySettings, on_progress: Callable[[int, int], None]
) -> AsyncGenerator[KeptStore]:
    identity = StoreIdentity()
    client, plain = connect(redis_url, identity), connect(redis_url)
    engine = assemble_engine(client, queue)
    async with (
        contextlib.aclosing(client),
        contextlib.aclosing(plain),
        Database(history.database_url, queue.queue_name) as database,
    ):
        custodian = custody_of(database, plain, queue, engine, identity, on_progress)
        await _settle_or_stay_closed(custodian, identity)
        await _align(engine)
        async with running(custodian.watch()):
            yield KeptStore(client, engine, database, custodian, plain)


async def _align(engine: Engine) -> None:
    """Of several partitions new ones learn which pauses and limits there are; who cannot be asked now keeps its own."""
    try:
        await engine.controls.align()
    except Unavailable as error:
        log.warning("pauses and limits of all partitions could not be compared", error=str(error))


async def _settle_or_stay_closed(custodian: Custodian | Custodians, identity: StoreIdentity) -> None:
    """Without history nothing can be compared: the service answers that it is closed, and opens as soon as it can."""
    try:
        await custodian.settle()
    except HistoryUnavailable as error:
        log.error("history cannot be reached: closed until it can", error=str(error))
        identity.doubt.set()


@contextlib.asynccontextmanager
async def _open_without(redis_url: str, queue: QueueSettings) -> AsyncGenerator[KeptStore]:
    retention = msgspec.structs.replace(queue.retention, has_history=False)
    client = connect(redis_url)
    engine = assemble_engine(client, msgspec.structs.replace(queue, retention=retention))
    doubt = asyncio.Event()
    for part in engine.parts:
        part.scripts.on_replaced = doubt.set
    async with contextlib.aclosing(client):
        await _open(engine)
        async with running(_begin_anew_for_ever(engine, doubt)):
            yield KeptStore(client, engine, None, None, client)


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
    if epoch != before:
        log.error("the store was replaced, and there is no history to rebuild it from", epoch=epoch)


async def _begin_anew_for_ever(engine: Engine, doubt: asyncio.Event) -> None:
    while True:
        await doubt.wait()
        doubt.clear()
        try:
            for part in engine.parts:
                await _begin_anew(part)
        except (QueueError, SettingsError) as error:
            log.warning("store in doubt", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            doubt.set()
