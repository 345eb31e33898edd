"""A collector of the test's own, and a queue nobody else uses."""

import uuid
from collections.abc import Iterator

import pytest

from tests.telemetry.jaeger import complaints
from tests.telemetry.recording import Recording
from tests.telemetry.sink import Sink, collecting


@pytest.fixture
def sink() -> Iterator[Sink]:
    with collecting() as sink:
        yield sink


@pytest.fixture
def outside() -> frozenset[str]:
    """Spans that a test's own submitter tells: override it with theirs."""
    return frozenset()


@pytest.fixture
def tracing(outside: frozenset[str]) -> Iterator[Recording]:
    """Whatever a test has it record, Jaeger takes it without a warning."""
    tracing = Recording()
    yield tracing
    assert not complaints(tracing.seen, outside)


@pytest.fixture
def queue_name() -> str:
    return uuid.uuid4().hex[:12]
