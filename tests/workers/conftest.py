"""A real service on a queue of its own, with shortened times, and real workers for it."""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench
from tests.api.running import Running, environ, serving
from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tests.workers.workshop import Workshop, workshop

SHORT = {
    "TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS": "2",
    "TIDEQ_HEARTBEAT_TIMEOUT_SECONDS": "2",
    "TIDEQ_RETRY_BASE_SECONDS": "0.1",
}
"""Thirty, ninety and ten seconds outside of tests."""


@pytest.fixture
def times() -> dict[str, str]:
    """Override to test with other settings of the service."""
    return SHORT


@pytest.fixture
def queue_name() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def service_settings(store: StoreUnderTest, queue_name: str, times: dict[str, str]) -> dict[str, str]:
    return environ(store.url, queue_name, **times)


@pytest.fixture
def service(service_settings: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    with serving(service_settings, tmp_path) as running:
        yield running


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with workshop(tmp_path / "shop") as shop:
        yield shop


@pytest.fixture
async def bench(service: Running) -> AsyncIterator[Bench]:
    async with httpx.AsyncClient(base_url=service.url, timeout=40) as client:
        yield Bench(client)


@pytest.fixture
async def kit(client: Any, service: Running, queue_name: str) -> AsyncIterator[Kit]:
    """To look behind the service; afterwards the store's invariants must still hold."""
    kit = await make_kit(client, queue_name)
    yield kit
    await kit.assert_sound()
