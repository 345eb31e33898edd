"""The two sides of a race: `w1` on the left, `w2` on the right."""

import random
from collections.abc import AsyncIterator

import pytest

from tests.kit import Kit, make_kit
from tests.races.racing import Sides
from tests.stores import StoreUnderTest


@pytest.fixture
async def sides(kit: Kit, store: StoreUnderTest) -> AsyncIterator[Sides]:
    client = store.client()
    other = await make_kit(client, kit.settings.queue_name, kit.settings)
    await kit.worker("w1", capacity=1_000)
    await other.worker("w2", capacity=1_000)
    yield Sides(kit, other, random.Random(7))
    await client.aclose()
