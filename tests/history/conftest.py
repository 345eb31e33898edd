"""A history of its own for every test: a schema on the session's PostgreSQL, and a queue of the same name."""

import time
import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreClock


@pytest.fixture
def queue_name() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def queue_settings(settings: QueueSettings, queue_name: str) -> QueueSettings:
    return msgspec.structs.replace(settings, queue_name=queue_name)


@pytest.fixture
def history_settings(database_url: str) -> HistorySettings:
    return HistorySettings(database_url=database_url)


@pytest.fixture
async def database(history_settings: HistorySettings, queue_name: str) -> AsyncIterator[Database]:
    """Without any table yet."""
    async with Database(history_settings.database_url, queue_name) as database:
        yield database


@pytest.fixture
async def migrated(database: Database, history_settings: HistorySettings) -> Database:
    await migrate(database)
    await Partitions(database, history_settings).make_ahead(time.time_ns() // 1_000_000)
    return database


@pytest.fixture
async def kept(
    store: StoreUnderTest, migrated: Database, queue_settings: QueueSettings, history_settings: HistorySettings
) -> AsyncIterator[OpenStore]:
    """A new install: an empty store in the custody of an empty history."""
    async with open_store(store.url, queue_settings, history_settings) as kept:
        yield kept


@pytest.fixture
async def kit(kept: OpenStore, queue_settings: QueueSettings) -> AsyncIterator[Kit]:
    """The engine on the store in custody; afterwards its invariants must still hold."""
    kit = kit_on(kept, queue_settings)
    yield kit
    await kit.assert_sound()


def kit_on(kept: OpenStore, settings: QueueSettings) -> Kit:
    keys = Keys(settings.queue_name, settings.partition)
    return Kit(kept.client, settings, keys, kept.engine, StoreClock(kept.client, keys))
