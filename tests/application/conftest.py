"""A real service, a client of it as the process's default, and handlers that do not outlive their test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import tideq
from tests.api.running import environ, serving
from tests.stores import StoreUnderTest
from tideq.application import chain
from tideq.client import Client
from tideq.workers.runtime.registry import registered


@pytest.fixture
def client(store: StoreUnderTest, tmp_path: Path) -> Iterator[Client]:
    settings = environ(store.url, tmp_path.name.replace("_", "-")[:40])
    with serving(settings, tmp_path) as service, tideq.init(service.url) as client:
        yield client


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    yield
    registered.clear()
    chain.clear_chains()
