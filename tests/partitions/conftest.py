"""Queues of several partitions on one store."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tideq.queue_core.settings import QueueSettings


@pytest.fixture
def partitions() -> tuple[int, ...]:
    """Override to test with another number."""
    return (4,)


@pytest.fixture
async def kit(
    client: Any, store: StoreUnderTest, settings: QueueSettings, partitions: tuple[int, ...]
) -> AsyncIterator[Kit]:
    chosen = msgspec.structs.replace(settings, partitions=partitions)
    kit = await make_kit(client, uuid.uuid4().hex[:12], chosen, sends_flags=store.sends_flags)
    yield kit
    await kit.assert_sound()
