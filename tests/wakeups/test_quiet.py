"""Nothing is published while nobody waits: whoever finds nothing says that they wait, and is told from then on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.queue_core.polls.ready_lanes import ReadyLanes
from tideq.queue_core.store.connect import connect_listener
from tideq.queue_core.store.store_client import subscribed

LONGER_THAN_A_SURVEY_MS = 5_000
END = "end"

Heard = Callable[[], Awaitable[list[str]]]


@pytest.fixture
async def heard(kit: Kit, store: StoreUnderTest) -> AsyncIterator[Heard]:
    """What has been published so far."""
    messages, ended, channel, listener = (
        list[str](),
        asyncio.Event(),
        kit.keys.wake_channel,
        connect_listener(store.url),
    )

    def hear(_channel: str, message: str) -> None:
        if message == END:
            ended.set()
        else:
            messages.append(message)

    async def everything() -> list[str]:
        ended.clear()
        await kit.client.publish(channel, END)
        await ended.wait()
        return messages

    async with subscribed(listener, [channel], hear):
        yield everything
    await listener.aclose()


async def test_a_submission_that_nobody_waits_for_is_not_published(kit: Kit, heard: Heard) -> None:
    await kit.worker()
    await kit.submit()

    await kit.claimed()
    await kit.submit()

    assert await heard() == []


async def test_a_claim_that_finds_nothing_is_told_of_what_comes(kit: Kit, heard: Heard) -> None:
    await kit.worker()

    assert not (await kit.queue.claim("w1")).tasks
    await kit.submit()

    assert [message.split(" ")[1] for message in await heard()] == ["0:1"]


async def test_who_waits_for_long_is_still_told_because_his_process_looks_every_second(kit: Kit, heard: Heard) -> None:
    await kit.worker()
    await kit.queue.claim("w1")
    await kit.clock.advance(LONGER_THAN_A_SURVEY_MS)

    await ReadyLanes(kit.engine.scripts, kit.client, kit.keys).scan(1)
    await kit.submit()

    assert len(await heard()) == 1


async def test_who_has_gone_is_told_of_nothing_more(kit: Kit, heard: Heard) -> None:
    await kit.worker()
    await kit.queue.claim("w1")
    await kit.clock.advance(LONGER_THAN_A_SURVEY_MS)

    await kit.submit()

    assert await heard() == []
