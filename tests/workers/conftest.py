"""A real service with shortened times for the whole suite, and real workers for it.

A test that stops the service, or counts all that happened in its queue, has one of its own.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench
from tests.api.running import Running, environ, serving
from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tests.workers.workshop import Workshop, workshop

HEARTBEAT_SECONDS = 3
SHORT = {
    "TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS": "2",
    "TIDEQ_HEARTBEAT_TIMEOUT_SECONDS": str(HEARTBEAT_SECONDS),
    "TIDEQ_RETRY_BASE_SECONDS": "0.1",
    # One worker is made to fail all the time, and shall go on.
    "TIDEQ_CIRCUIT_FAILURES": "10000",
}
"""Thirty, ninety and ten seconds outside of tests."""
SHARED_HEARTBEAT_SECONDS = 5
SHARED = {
    **SHORT,
    "TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS": "30",
    "TIDEQ_HEARTBEAT_TIMEOUT_SECONDS": str(SHARED_HEARTBEAT_SECONDS),
}
"""Nobody has to be given up here, and on a busy machine nobody may be."""


@dataclass(frozen=True)
class Site:
    """Where a service runs, and can be run again."""

    settings: dict[str, str]
    folder: Path

    @property
    def queue_name(self) -> str:
        return self.settings["TIDEQ_QUEUE"]


@pytest.fixture(scope="session")
def shared_site(running_stores: Callable[[str], StoreUnderTest], tmp_path_factory: pytest.TempPathFactory) -> Site:
    settings = environ(running_stores("valkey").url, uuid.uuid4().hex[:12], **SHARED)
    return Site(settings, tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="session")
def shared_service(shared_site: Site) -> Iterator[Running]:
    with serving(shared_site.settings, shared_site.folder) as running:
        yield running


@pytest.fixture
def site(shared_site: Site) -> Site:
    """Override with `own_site` for a queue of its own."""
    return shared_site


@pytest.fixture
def own_site(store: StoreUnderTest, tmp_path: Path) -> Site:
    return Site(environ(store.url, uuid.uuid4().hex[:12], **SHORT), tmp_path)


@pytest.fixture
def own_service(own_site: Site) -> Iterator[Running]:
    with serving(own_site.settings, own_site.folder) as running:
        yield running


@pytest.fixture
def service(shared_service: Running) -> Running:
    """Override together with `site`."""
    return shared_service


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with workshop(tmp_path / "shop") as shop:
        yield shop


@pytest.fixture
async def bench(service: Running) -> AsyncIterator[Bench]:
    async with httpx.AsyncClient(base_url=service.url, timeout=40) as client:
        yield Bench(client)


@pytest.fixture
async def kit(client: Any, service: Running, site: Site) -> AsyncIterator[Kit]:
    """To look behind the service; afterwards the store's invariants must still hold."""
    kit = await make_kit(client, site.queue_name)
    yield kit
    await kit.assert_sound()
