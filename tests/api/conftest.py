"""The service on a queue of its own: inside the test's loop for most, as a process for what needs sockets."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.api.bench import Bench
from tests.api.running import Running, environ, serving
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.api.app import create_app
from tideq.api.service import Service, open_service
from tideq.api.settings import Auth, ServiceSettings
from tideq.queue_core.engine.clock import StoreClock
from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.settings import QueueSettings


@pytest.fixture
def auth() -> Auth:
    """Override with "keys" to test who may do what."""
    return "off"


@pytest.fixture
def queue_name() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
async def service(
    store: StoreUnderTest, settings: QueueSettings, auth: Auth, queue_name: str
) -> AsyncIterator[Service]:
    queue = msgspec.structs.replace(settings, queue_name=queue_name)
    async with open_service(ServiceSettings(auth=auth, redis_url=store.url, queue=queue)) as service:
        await service.wakeups.listening()
        yield service


@pytest.fixture
async def kit(service: Service) -> AsyncIterator[Kit]:
    """The service's own engine, to look behind the API; afterwards its invariants must still hold."""
    queue = service.settings.queue
    keys = Keys(queue.queue_name, queue.partition)
    kit = Kit(service.client, queue, keys, service.engine, StoreClock(service.client, keys))
    yield kit
    await kit.assert_sound()


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    app: Any = create_app(service)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq") as client:
        yield client


@pytest.fixture
def bench(http: httpx.AsyncClient, kit: Kit) -> Bench:
    return Bench(http)


@pytest.fixture
def server_settings(store: StoreUnderTest, queue_name: str) -> dict[str, str]:
    return environ(store.url, queue_name)


@pytest.fixture
def server(server_settings: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    """A `tideq serve` of its own, open to all on loopback."""
    with serving(server_settings, tmp_path) as running:
        yield running


@pytest.fixture
def server_url(server: Running) -> str:
    return server.url


@pytest.fixture
async def remote(server_url: str) -> AsyncIterator[Bench]:
    """The calls, over a real connection to the real process."""
    async with httpx.AsyncClient(base_url=server_url, timeout=40) as client:
        yield Bench(client)
