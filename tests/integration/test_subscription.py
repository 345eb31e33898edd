"""What is published is heard, by both ways of listening, and its end is known."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import fakeredis
import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey
from tideq.queue_core.errors import StoreRefused
from tideq.queue_core.store.connect import connect, connect_listener
from tideq.queue_core.store.store_client import subscribed


class Heard:
    """Messages in the order they came."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self._news = asyncio.Event()

    def hear(self, channel: str, message: str) -> None:
        self.messages.append((channel, message))
        self._news.set()

    async def of(self, count: int) -> list[tuple[str, str]]:
        async with asyncio.timeout(20):
            while len(self.messages) < count:
                self._news.clear()
                await self._news.wait()
        return self.messages


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStores]:
    folder: Path = tmp_path_factory.mktemp("subscription")
    with EmbeddedStores(folder, valkey=ValkeyOptions(binary=bundled_valkey()), postgres=None) as stores:
        yield stores


@pytest.fixture
async def client(stores: EmbeddedStores) -> AsyncIterator[Any]:
    client: Any = connect(stores.redis_url)
    yield client
    await client.aclose()


@pytest.fixture
async def listener(stores: EmbeddedStores) -> AsyncIterator[Any]:
    listener: Any = connect_listener(stores.redis_url)
    yield listener
    await listener.aclose()


async def test_messages_of_all_channels_are_heard_in_their_order(client: Any, listener: Any) -> None:
    heard = Heard()

    async with subscribed(listener, ["tide", "moon"], heard.hear):
        await client.publish("tide", "in")
        await client.publish("moon", "full")
        await client.publish("sun", "hot")
        await client.publish("tide", "out " + "x" * 100_000)

        assert await heard.of(3) == [("tide", "in"), ("moon", "full"), ("tide", "out " + "x" * 100_000)]


async def test_nothing_published_after_the_confirmation_is_missed(client: Any, listener: Any) -> None:
    heard = Heard()

    for number in range(20):
        async with subscribed(listener, ["tide"], heard.hear):
            assert await client.publish("tide", str(number)) == 1
            await heard.of(number + 1)


async def test_a_connection_that_ends_is_told(client: Any, listener: Any) -> None:
    async with subscribed(listener, ["tide"], Heard().hear) as ending:
        await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(ending, 20)


async def test_leaving_ends_the_subscription_and_its_connection_serves_again(client: Any, listener: Any) -> None:
    async with subscribed(listener, ["tide"], Heard().hear):
        pass

    assert await client.pubsub_numsub("tide") == [(b"tide", 0)]
    assert await listener.ping()


async def test_a_refused_subscription_is_an_error(client: Any, stores: EmbeddedStores) -> None:
    await client.execute_command("ACL", "SETUSER", "deaf", "on", ">secret", "+@all", "~*", "resetchannels")
    listener: Any = connect_listener(stores.redis_url)
    listener.connection_pool.connection_kwargs |= {"username": "deaf", "password": "secret"}

    with pytest.raises(StoreRefused, match="permission"):
        async with subscribed(listener, ["tide"], Heard().hear):
            pass
    await listener.aclose()


async def test_a_store_in_this_process_is_heard_by_the_drivers_own_way() -> None:
    server, heard = fakeredis.FakeServer(), Heard()
    client: Any = fakeredis.FakeAsyncRedis(server=server)

    async with subscribed(fakeredis.FakeAsyncRedis(server=server), ["tide"], heard.hear):
        await client.publish("tide", "in")

        assert await heard.of(1) == [("tide", "in")]
