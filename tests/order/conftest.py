"""A bench the examples of a Hypothesis test share: one loop and one client; each example makes a queue of its own."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.order.bench import Bench
from tests.stores import StoreUnderTest


@pytest.fixture(scope="session")
def bench(running_stores: Callable[[str], StoreUnderTest]) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        client = running_stores("valkey").client()
        yield Bench(runner, client)
        runner.run(client.aclose())
