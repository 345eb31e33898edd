"""A service with history, monitor and replicator in one process, as `tideq up` runs it."""

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.api.bench import Bench, until
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.api.app import create_app
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings
from tideq.cli.background_duties import run_all_duties
from tideq.persistence.database import Database
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.background import background_task
from tideq.queue_core.outbox.monitor_cursor import MonitorCursor
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import Probing, QueueSettings
from tideq.queue_core.store.clock import StoreClock


class Whole(NamedTuple):
    service: Service
    kit: Kit
    http: httpx.AsyncClient
    bench: Bench


@pytest.fixture
def queue_settings() -> QueueSettings:
    """Retries at once, and probes of workers on this machine."""
    backoff = Backoff(base_ms=1, multiplier=1.0, cap_ms=1)
    probing = Probing(interval_ms=200, allowed_cidrs=("127.0.0.1/32",))
    return QueueSettings(queue_name=uuid.uuid4().hex[:12], backoff=backoff, probing=probing)


@pytest.fixture
async def quiet(store: StoreUnderTest, database_url: str, queue_settings: QueueSettings) -> AsyncIterator[Whole]:
    """The service with its stores, and nobody at work on them."""
    history = HistorySettings(database_url=database_url)
    async with Database(database_url, queue_settings.queue_name) as database:
        await migrate(database)
        await Partitions(database, history).make_ahead(time.time_ns() // 1_000_000)
    settings = ServiceSettings(auth="off", redis_url=store.url, queue=queue_settings, history=history)
    async with open_service(settings) as service:
        keys = Keys(queue_settings.queue_name)
        kit = Kit(service.client, queue_settings, keys, service.engine, StoreClock(service.client, keys))
        app: Any = create_app(service)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq") as http:
            yield Whole(service, kit, http, Bench(http))


@pytest.fixture
async def whole(quiet: Whole) -> AsyncIterator[Whole]:
    service, kit = quiet.service, quiet.kit
    journal = MonitorCursor(kit.client, kit.engine.scripts, kit.keys)

    async def is_followed() -> bool:
        return bool(await journal.position())

    async with background_task(run_all_duties(service.store, service.settings, service.duties)):
        await until(is_followed)
        yield quiet
