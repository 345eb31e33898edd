"""Listeners from within: how they are kept alive, how they join in, and what becomes of one that does not read."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.bench import Bench, until
from tests.api.listening import EVENTS, Listening, listening
from tests.api.running import Running
from tests.contract.situations import submit_count
from tests.kit import Kit, make_kit
from tideq.api import event_stream
from tideq.api.event_stream import EventStreamSession
from tideq.api.service import Service
from tideq.queue_core.outbox.stream import Event, EventCursor, EventPage, OutboxStream, Position


@pytest.fixture
async def watched(client: Any, server: Running, queue_name: str) -> AsyncIterator[Kit]:
    """The process's queue, moved from outside: events come from any process."""
    kit = await make_kit(client, queue_name)
    await kit.worker(capacity=10_000)
    yield kit
    await kit.assert_sound()


async def _first(listener: EventStreamSession, service: Service, count: int) -> list[bytes]:
    with service.live_events.subscribe(lambda _: False) as live:
        chunks = listener.chunks(live)
        return [await anext(chunks) for _ in range(count)]


async def test_a_quiet_stream_is_kept_alive_and_tells_how_far_it_is(
    service: Service, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that wants nothing of what happens must not fall behind what the stream keeps."""
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.05)
    await service.live_events.wait_until_reading()
    listener = EventStreamSession([service.outbox], service.live_events, lambda _: False, None)
    with service.live_events.subscribe(lambda _: False) as live:
        chunks = listener.chunks(live)
        assert await anext(chunks) == b": stream opened\nretry: 1000\n\n"
        await kit.submit()
        newest = await service.outbox.newest()

        async def is_told() -> bool:
            return await anext(chunks) == f": keep-alive\nretry: 1000\nid: {newest}\n\n".encode()

        await until(is_told)


def test_keep_alives_come_before_proxies_lose_patience() -> None:
    assert event_stream.KEEP_ALIVE_SECONDS <= 20


def _open_and_do_not_read(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", port))
    connection.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n".encode())
    return connection


async def test_a_listener_that_does_not_read_is_cut_off_and_costs_no_memory(
    server: Running, remote: Bench, watched: Kit
) -> None:
    """It gets what was on its way, then the end, and finds the rest by going on from there."""
    slow = _open_and_do_not_read(server.port)
    head = await asyncio.to_thread(_read_head, slow)
    async with listening(remote.http) as quick:
        task_ids = await _submit_many(watched, 1_000, quick)
        before = server.peak_kib()
        task_ids += await _submit_many(watched, 30_000, quick)

    assert server.peak_kib() - before < 40 * 1024
    assert re.search(
        r"^tideq_event_listeners_cut_off_total\{.*\} 1\.0$", (await remote.http.get("/metrics")).text, re.MULTILINE
    )
    got = await asyncio.to_thread(_read_to_the_end, slow, head)
    told = [line[4:] for line in got.split("\n") if line.startswith("id: ")]
    assert 1_000 < len(told) < len(task_ids), "it was not cut off: send more"
    async with listening(remote.http, last_id=told[-1]) as again:
        seen = set(told)
        fresh = await again.next(1_000)
    assert not seen & {message.id for message in fresh}


async def _submit_many(kit: Kit, count: int, listener: Listening) -> list[str]:
    """In step with a listener that does read: the reader of the process never lags."""
    ids: list[str] = []
    for _ in range(count // 500):
        ids += await submit_count(kit, 500)
        await listener.next(500)
    return ids


def _read_head(connection: socket.socket) -> bytes:
    """Only as much as says that the stream is open."""
    head = b""
    while b"stream opened" not in head:
        head += connection.recv(1)
    return head


def _read_to_the_end(connection: socket.socket, begun: bytes) -> str:
    with connection:
        rest = b"".join(iter(lambda: connection.recv(65_536), b""))
    return (begun + rest).decode()


class Crossing(OutboxStream):
    """Just before the last look into the stream something happens, and the reader passes it on: both tell of it."""

    def __init__(self, service: Service, kit: Kit) -> None:
        super().__init__(kit.client, kit.keys)
        self._service = service
        self._kit = kit
        self.has_happened = False

    async def page_after(self, position: Position) -> EventPage | None:
        page = await super().page_after(position)
        if page and page.end == position and not self.has_happened and self.is_live():
            self.has_happened = True
            await self._kit.submit()
            newest = await self.newest()

            async def is_passed_on() -> bool:
                return self._service.live_events.cursor.positions[0] >= newest

            await until(is_passed_on)
            return await super().page_after(position)
        return page

    def is_live(self) -> bool:
        (reader,) = self._service.live_events._readers  # pyright: ignore[reportPrivateUsage]
        return any(each.wants is _everything for each in reader._subscriptions)  # pyright: ignore[reportPrivateUsage]


def _everything(_event: Event) -> bool:
    return True


async def test_what_happens_while_a_listener_joins_in_is_told_once(
    service: Service, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.2)
    await kit.submit()
    crossing = Crossing(service, kit)
    listener = EventStreamSession(
        [crossing], service.live_events, _everything, EventCursor((await service.outbox.newest(),))
    )

    told = b""
    with service.live_events.subscribe(lambda _: False) as live:
        async for chunk in listener.chunks(live):
            told += chunk
            if b"keep-alive" in chunk:
                break

    assert crossing.has_happened
    assert told.count(b"event: transition") == 1


async def test_a_place_survives_in_the_middle_of_an_entry(service: Service, kit: Kit) -> None:
    await service.live_events.wait_until_reading()
    await submit_count(kit, 3)
    newest = await service.outbox.newest()
    middle = Position(newest.milliseconds, newest.sequence, 2)

    greeting, events = await _first(
        EventStreamSession([service.outbox], service.live_events, lambda _: True, EventCursor((middle,))), service, 2
    )

    assert f"id: {middle}\n".encode() in greeting
    assert events.count(b"event: transition") == 1
    assert f"id: {middle._replace(number=3)}\n".encode() in events
