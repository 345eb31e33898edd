"""A collector of the test's own, and a queue nobody else uses."""

import uuid
from collections.abc import Iterator

import pytest

from tests.telemetry.sink import Sink, collecting


@pytest.fixture
def sink() -> Iterator[Sink]:
    with collecting() as sink:
        yield sink


@pytest.fixture
def queue_name() -> str:
    return uuid.uuid4().hex[:12]
