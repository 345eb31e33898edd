"""The outbox as watchers read it: every event has a place of its own, and reading can go on from any."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.contract.situations import complete_all, started_count, submit_count
from tests.kit import Kit
from tideq.queue_core.outbox import live
from tideq.queue_core.outbox.live import LiveEvents, Subscription
from tideq.queue_core.outbox.reader import FIRST_ID, OutboxGap
from tideq.queue_core.outbox.stream import BEGINNING, Event, EventPage, OutboxStream, Position, end_of, parse_position
from tideq.queue_core.task import NewTask


@pytest.fixture
def outbox(kit: Kit) -> OutboxStream:
    return OutboxStream(kit.client, kit.keys)


async def everything(kit: Kit, outbox: OutboxStream) -> list[Event]:
    """From the first entry on, page by page."""
    entries = await kit.client.xrange(kit.keys.key("outbox"), count=1)
    return await rest(outbox, end_of(entries[0][0].decode())._replace(number=0))


async def rest(outbox: OutboxStream, place: Position) -> list[Event]:
    found: list[Event] = []
    while page := await outbox.page_after(place):
        found += page.events
        if page.end == place:
            return found
        place = page.end
    raise AssertionError("the place is gone")


async def busy_queue(kit: Kit) -> None:
    """Entries of one event and of many."""
    await kit.worker(capacity=1000)
    await submit_count(kit, 30)
    await complete_all(kit, await started_count(kit, 40, task_type="crop", priority="high"))
    for _ in range(50):
        await kit.submit("blur")


async def test_every_transition_has_a_place_of_its_own_in_the_order_they_happened(
    kit: Kit, outbox: OutboxStream
) -> None:
    await busy_queue(kit)

    events = await everything(kit, outbox)

    positions = [event.position for event in events]
    assert len(events) == 30 + 4 * 40 + 50
    assert positions == sorted(set(positions))
    versions: dict[str, list[int]] = {}
    for event in events:
        versions.setdefault(event.task_id, []).append(event.record.number("version"))
    assert all(told == list(range(1, len(told) + 1)) for told in versions.values())


async def test_reading_goes_on_from_any_event_without_missing_or_repeating_one(kit: Kit, outbox: OutboxStream) -> None:
    await busy_queue(kit)
    events = await everything(kit, outbox)

    for at, event in enumerate(events):
        if at % 17 == 0:
            following = await rest(outbox, event.position)
            assert [each.position for each in following] == [each.position for each in events[at + 1 :]]


async def test_an_event_tells_its_task_type(kit: Kit, outbox: OutboxStream) -> None:
    await busy_queue(kit)

    types = {
        (await kit.read(event.task_id)).definition.task_type == event.task_type
        for event in await everything(kit, outbox)
    }

    assert types == {True}


async def test_a_type_that_opens_a_lane_later_is_known_too(kit: Kit, outbox: OutboxStream) -> None:
    await kit.submit("resize")
    await everything(kit, outbox)

    await kit.submit("never-seen")

    assert [event.task_type for event in await everything(kit, outbox)] == ["resize", "never-seen"]


async def test_a_place_that_was_trimmed_is_gone(kit: Kit, outbox: OutboxStream) -> None:
    await kit.submit()
    await kit.submit()
    first, second = await everything(kit, outbox)

    await kit.engine.partition.acknowledge(second.position.entry_id, [])

    assert await outbox.page_after(first.position) is None
    assert await outbox.gap_after(first.position.entry_id) == OutboxGap(second.now_ms)
    assert await outbox.gap_after(second.position.entry_id) is None
    assert await rest(outbox, second.position) == []


async def test_a_place_of_another_store_is_gone(kit: Kit, outbox: OutboxStream) -> None:
    await kit.submit()

    assert await outbox.page_after(Position(9_999_999_999_999, 0, 1)) is None
    assert await outbox.page_after(Position(1, 0, 1)) is None


async def test_from_the_beginning_everything_is_read_until_entries_are_trimmed(kit: Kit, outbox: OutboxStream) -> None:
    at_first = await outbox.page_after(BEGINNING)
    await kit.submit()
    await kit.submit()
    whole = await outbox.page_after(BEGINNING)

    await kit.engine.partition.acknowledge((await outbox.last_id()), [])

    assert (at_first, whole and len(whole.events)) == (EventPage([], BEGINNING), 2)
    assert await outbox.page_after(BEGINNING) is None


async def test_nothing_is_missing_after_the_last_entry_although_all_are_trimmed(kit: Kit, outbox: OutboxStream) -> None:
    await kit.submit()
    await kit.submit()
    first, second = await everything(kit, outbox)
    await kit.engine.partition.acknowledge("9999999999999-0", [])

    assert await outbox.page_after(second.position) == EventPage([], second.position)
    assert await outbox.gap_after(second.position.entry_id) is None
    assert await outbox.gap_after(first.position.entry_id) == OutboxGap(None)


async def test_a_stream_that_was_deleted_has_a_gap_after_every_entry(kit: Kit, outbox: OutboxStream) -> None:
    await kit.submit()
    (event,) = await everything(kit, outbox)
    await kit.client.delete(kit.keys.key("outbox"))

    assert await outbox.gap_after(event.position.entry_id) == OutboxGap(None)
    assert await outbox.gap_after(FIRST_ID) is None


async def test_the_newest_place_is_after_everything(kit: Kit, outbox: OutboxStream) -> None:
    assert await outbox.newest() == BEGINNING

    await submit_count(kit, 3)

    assert await rest(outbox, await outbox.newest()) == []
    assert await outbox.newest() > (await everything(kit, outbox))[-1].position


@pytest.mark.parametrize("position", [Position(1, 0, 1), Position(1_772_442_900_250, 12, 345)])
def test_a_place_is_read_as_it_is_written(position: Position) -> None:
    assert parse_position(str(position)) == position


@pytest.mark.parametrize("written", ["", "1", "1-2", "1-2-", "1-2-x", "-1-2-3", "1-2-3-4", "1-2-3 ", "١-٢-٣", "9" * 40])
def test_what_is_no_place_is_none(written: str) -> None:
    assert parse_position(written) is None


# Listening


@pytest.fixture
async def reader(kit: Kit, outbox: OutboxStream) -> AsyncIterator[LiveEvents]:
    async with LiveEvents([outbox]) as reader:
        await reader.wait_until_reading()
        yield reader


async def heard(subscription: Subscription, count: int) -> list[Event]:
    events: list[Event] = []
    while len(events) < count:
        taken = await subscription.take(10)
        assert taken, f"{len(events)} instead of {count}"
        events += taken
    return events


async def test_a_listener_hears_what_it_wants_and_nothing_that_was_before(kit: Kit, reader: LiveEvents) -> None:
    with reader.subscribe(lambda event: event.task_type == "crop") as subscription:
        await submit_count(kit, 3)
        crops = await submit_count(kit, 5, "crop")

        events = await heard(subscription, 5)

    assert [event.task_id for event in events] == crops


async def test_a_listener_that_falls_behind_is_cut_off_and_keeps_nothing_waiting(kit: Kit, reader: LiveEvents) -> None:
    with reader.subscribe(lambda _: True, max_waiting=10) as slow, reader.subscribe(lambda _: True) as quick:
        await submit_count(kit, 30)
        await heard(quick, 30)

        assert (slow.cut_off.is_set(), quick.cut_off.is_set()) == (True, False)
        assert await slow.take(0) == []


async def test_leaving_ends_every_subscription(kit: Kit, outbox: OutboxStream) -> None:
    async with LiveEvents([outbox]) as reader:
        with reader.subscribe(lambda _: True) as subscription:
            reader.close()

            assert await subscription.take(10) == []
            assert subscription.cut_off.is_set()


async def test_listeners_are_cut_off_when_the_stream_lost_the_place_of_a_reader_that_lags(
    kit: Kit, reader: LiveEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading that is full means there is more: what lay before it may have been trimmed unread."""
    monkeypatch.setattr(live, "MAX_ENTRIES", 1)
    with reader.subscribe(lambda _: True) as subscription:
        await kit.submit()
        await heard(subscription, 1)
        await kit.engine.partition.acknowledge("9999999999999-0", [])

        await kit.submit()

        assert await subscription.take(10) == []
        assert subscription.cut_off.is_set()


async def test_listeners_of_a_reader_that_keeps_up_need_nothing_old(kit: Kit, reader: LiveEvents) -> None:
    with reader.subscribe(lambda _: True) as subscription:
        await kit.submit()
        await heard(subscription, 1)
        await kit.engine.partition.acknowledge("9999999999999-0", [])

        task_id = await kit.submit()

        assert [event.task_id for event in await heard(subscription, 1)] == [task_id]


async def test_the_outbox_keeps_every_entry_until_history_has_it(kit: Kit) -> None:
    """More than any cap on a stream that its writer might set, and than what such a cap leaves standing."""
    count = 1_300

    await asyncio.gather(*(kit.queue.submit_many([NewTask("resize")]) for _ in range(count)))

    assert await kit.client.xlen(kit.keys.key("outbox")) == count
