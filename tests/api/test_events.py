"""Server-sent events: every transition once, in order, from where a listener left off, and no buffer without bounds."""

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn

from tests.api.bench import Bench, assert_problem, until
from tests.api.listening import EVENTS, Listening, Message, listening
from tests.api.running import Running
from tests.contract.situations import complete_all, started_count, submit_count
from tests.kit import Kit, make_kit
from tideq.api import event_stream
from tideq.api.app import create_app
from tideq.api.event_stream import Listener
from tideq.api.server import Server, address_of, listen
from tideq.api.service import Service
from tideq.queue_core.engine.outbox import Event, Outbox, Page, Position

ROUNDS = 20
ROUND_TRANSITIONS = 80


@pytest.fixture
async def here(service: Service, kit: Kit) -> AsyncIterator[Bench]:
    """A real server on a real socket, but in this loop: it is there at once."""
    await kit.worker(capacity=10_000)
    listener = listen("127.0.0.1", 0)
    app: Any = create_app(service)
    server = Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with httpx.AsyncClient(base_url=address_of(listener), timeout=40) as http:
        yield Bench(http)
    service.close()
    server.should_exit = True
    await serving
    listener.close()


@pytest.fixture
async def watched(client: Any, server: Running, queue_name: str) -> AsyncIterator[Kit]:
    """The process's queue, moved from outside: events come from any process."""
    kit = await make_kit(client, queue_name)
    await kit.worker(capacity=10_000)
    yield kit
    await kit.assert_sound()


def _transitions(messages: list[Message]) -> list[tuple[str, int]]:
    assert {message.event for message in messages} <= {"transition"}
    return [message.task for message in messages]


async def test_a_transition_is_told_as_it_happens(here: Bench, kit: Kit) -> None:
    async with listening(here.http) as heard:
        task_id = await kit.submit("resize", priority="high")
        await kit.complete(await kit.started())

        messages = await heard.next(4)

    assert [message.data["status"] for message in messages] == ["queued", "assigned", "executing", "completed"]
    assert [message.task for message in messages] == [(task_id, version) for version in (1, 2, 3, 4)]
    last = messages[-1].data
    assert (last["task_type"], last["priority"], last["worker_id"]) == ("resize", "high", "w1")
    assert (last["reason"], last["attempt"], last["at"][-1]) == ("succeeded", 1, "Z")
    assert len({message.id for message in messages}) == 4


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("status=completed", {("resize", 4)}),
        ("status=queued&status=completed", {("resize", 1), ("resize", 4), ("crop", 1), ("blur", 1)}),
        ("task_type=crop", {("crop", 1)}),
        ("task_type=crop&task_type=blur", {("crop", 1), ("blur", 1)}),
        ("priority=low", {("blur", 1)}),
        ("worker_id=w1", {("resize", 2), ("resize", 3), ("resize", 4)}),
        ("worker_id=nobody&status=completed", set[tuple[str, int]]()),
        ("task_type=crop&priority=low", set[tuple[str, int]]()),
    ],
)
async def test_a_listener_hears_only_what_it_asked_for(
    here: Bench, kit: Kit, query: str, expected: set[tuple[str, int]]
) -> None:
    async with listening(here.http, query) as heard, listening(here.http, "task_type=end") as other:
        await kit.submit("resize")
        await kit.complete(await kit.started())
        await kit.submit("crop")
        await kit.submit("blur", priority="low")
        await kit.submit("end", priority="high")
        await other.next(1)
        told = [heard.messages.get_nowait() for _ in range(heard.messages.qsize())]

    wanted = {(message.data["task_type"], message.data["version"]) for message in told}
    assert wanted - {("end", 1)} == expected


async def test_a_listener_may_ask_for_certain_tasks(here: Bench, kit: Kit) -> None:
    ids = await submit_count(kit, 5)

    async with listening(here.http, f"task_id={ids[1]}&task_id={ids[3]}") as heard:
        await kit.queue.cancel_many(ids)
        messages = await heard.next(2)

    assert [message.data["task_id"] for message in messages] == [ids[1], ids[3]]


@pytest.mark.parametrize("how", ["header", "query", "both"])
async def test_a_listener_goes_on_after_its_last_event(here: Bench, kit: Kit, how: str) -> None:
    async with listening(here.http) as heard:
        await submit_count(kit, 5)
        (first, *rest) = await heard.next(5)
    await submit_count(kit, 3)

    last_id = first.id if how != "query" else ""
    query = {"header": "", "query": f"last_event_id={first.id}", "both": f"last_event_id={rest[-1].id}"}[how]
    async with listening(here.http, query, last_id) as again:
        later = await kit.submit()
        messages = await again.next(8)

    assert messages[:4] == rest
    assert messages[-1].data["task_id"] == later
    assert [int(message.id.rpartition("-")[2]) for message in messages] == [2, 3, 4, 5, 1, 2, 3, 1]


async def test_many_disconnections_neither_lose_nor_repeat_an_event(here: Bench, kit: Kit) -> None:
    """Cut anywhere, in the middle of entries too, while events go on: pieced together it is everything, once."""
    told: list[Message] = []
    async with listening(here.http) as heard:
        await kit.submit("begin", delay_ms=100_000)
        last_id = (await heard.next(1))[0].id
    busy = asyncio.create_task(_be_busy(kit))
    while len(told) < ROUNDS * ROUND_TRANSITIONS:
        async with listening(here.http, last_id=last_id) as heard:
            told += await heard.next(1)
            while heard.messages.qsize():
                told.append(heard.messages.get_nowait())
        last_id = told[-1].id

    await busy
    transitions = _transitions(told)
    assert len(transitions) == len(set(transitions)) == ROUNDS * ROUND_TRANSITIONS
    versions: dict[str, int] = {}
    for task_id, version in transitions:
        assert versions.get(task_id, 0) == version - 1
        versions[task_id] = version


async def _be_busy(kit: Kit) -> None:
    for _ in range(ROUNDS):
        await complete_all(kit, await started_count(kit, ROUND_TRANSITIONS // 4))


async def test_a_listener_whose_place_is_gone_is_told_of_the_gap(here: Bench, kit: Kit) -> None:
    async with listening(here.http) as heard:
        await kit.submit()
        (old,) = await heard.next(1)
    kept = await kit.submit()
    newest = (await kit.client.xrevrange(kit.keys.key("outbox"), count=1))[0][0].decode()
    await kit.queue.acknowledge(newest, [])

    async with listening(here.http, last_id=old.id) as again:
        (gap,) = await again.next(1)
        later = await kit.submit()
        (after,) = await again.next(1)
    async with listening(here.http, last_id=gap.id) as resumed:
        (once_more,) = await resumed.next(1)

    assert (gap.event, gap.id) == ("gap", f"{newest}-1000000")
    assert gap.data["detail"]
    assert after.data["task_id"] == later != kept
    assert once_more == after


async def test_a_listener_of_another_store_is_told_of_the_gap(here: Bench, kit: Kit) -> None:
    async with listening(here.http, last_id="1772442900250-0-1") as heard:
        (gap,) = await heard.next(1)
        task_id = await kit.submit()

        assert gap.event == "gap"
        assert (await heard.next(1))[0].data["task_id"] == task_id


async def test_the_greeting_tells_where_a_listener_begins(here: Bench, kit: Kit) -> None:
    """So that one that is cut off before its first event misses nothing either."""
    await kit.submit()
    async with listening(here.http) as heard:
        await until(lambda: _is_known(heard))
        begins_at = heard.last_id
    missed = await kit.submit()

    async with listening(here.http, last_id=begins_at) as again:
        assert (await again.next(1))[0].data["task_id"] == missed


async def _is_known(heard: Listening) -> bool:
    return bool(heard.last_id)


@pytest.mark.parametrize("written", ["nonsense", "1-2", "1-2-3-4", "-1-2-3", "1-2-x", "9" * 50])
@pytest.mark.parametrize("how", ["header", "query"])
async def test_an_id_that_is_none_of_ours_is_refused(http: httpx.AsyncClient, kit: Kit, how: str, written: str) -> None:
    headers = {"Last-Event-ID": written} if how == "header" else {}

    answer = await http.get(f"{EVENTS}?last_event_id={written if how == 'query' else ''}", headers=headers)

    assert_problem(answer, 422)


async def test_a_state_there_is_not_is_refused(http: httpx.AsyncClient, kit: Kit) -> None:
    assert_problem(await http.get(f"{EVENTS}?status=asleep"), 400)


async def test_a_closing_service_opens_no_stream(http: httpx.AsyncClient, service: Service, kit: Kit) -> None:
    service.close()

    assert_problem(await http.get(EVENTS), 503, "service-closing")


async def test_streams_do_not_keep_a_service_from_stopping(server: Running, remote: Bench, watched: Kit) -> None:
    async with listening(remote.http) as one, listening(remote.http, "status=failed") as other:
        server.process.send_signal(signal.SIGTERM)

        assert await asyncio.to_thread(server.process.wait, 10) == 0
        await asyncio.wait_for(asyncio.gather(one.is_over.wait(), other.is_over.wait()), 5)
    assert server.complaints() == ""


# Keep-alives and listeners that do not read, inside the test's own loop where time can be short.


async def _first(listener: Listener, service: Service, count: int) -> list[bytes]:
    with service.outbox_reader.subscribe(lambda _: False) as live:
        chunks = listener.chunks(live)
        return [await anext(chunks) for _ in range(count)]


async def test_a_quiet_stream_is_kept_alive_and_tells_how_far_it_is(
    service: Service, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that wants nothing of what happens must not fall behind what the stream keeps."""
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.05)
    await service.outbox_reader.reading()
    listener = Listener(service.outbox, service.outbox_reader, lambda _: False, None)
    with service.outbox_reader.subscribe(lambda _: False) as live:
        chunks = listener.chunks(live)
        assert await anext(chunks) == b": listening\nretry: 1000\n\n"
        await kit.submit()
        newest = await service.outbox.newest()

        async def is_told() -> bool:
            return await anext(chunks) == f": still here\nretry: 1000\nid: {newest}\n\n".encode()

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
    while b"listening" not in head:
        head += connection.recv(1)
    return head


def _read_to_the_end(connection: socket.socket, begun: bytes) -> str:
    with connection:
        rest = b"".join(iter(lambda: connection.recv(65_536), b""))
    return (begun + rest).decode()


class Crossing(Outbox):
    """Just before the last look into the stream something happens, and the reader passes it on: both tell of it."""

    def __init__(self, service: Service, kit: Kit) -> None:
        super().__init__(kit.client, kit.keys)
        self._service = service
        self._kit = kit
        self.has_happened = False

    async def page_after(self, position: Position) -> Page | None:
        page = await super().page_after(position)
        if page and page.end == position and not self.has_happened and self.is_live():
            self.has_happened = True
            await self._kit.submit()
            newest = await self.newest()

            async def is_passed_on() -> bool:
                return self._service.outbox_reader.newest >= newest

            await until(is_passed_on)
            return await super().page_after(position)
        return page

    def is_live(self) -> bool:
        return any(each.wants is _everything for each in self._service.outbox_reader._subscriptions)  # pyright: ignore[reportPrivateUsage]


def _everything(_event: Event) -> bool:
    return True


async def test_what_happens_while_a_listener_joins_in_is_told_once(
    service: Service, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_SECONDS", 0.2)
    await kit.submit()
    crossing = Crossing(service, kit)
    listener = Listener(crossing, service.outbox_reader, _everything, await service.outbox.newest())

    told = b""
    with service.outbox_reader.subscribe(lambda _: False) as live:
        async for chunk in listener.chunks(live):
            told += chunk
            if b"still here" in chunk:
                break

    assert crossing.has_happened
    assert told.count(b"event: transition") == 1


async def test_a_place_survives_in_the_middle_of_an_entry(service: Service, kit: Kit) -> None:
    await service.outbox_reader.reading()
    await submit_count(kit, 3)
    newest = await service.outbox.newest()
    middle = Position(newest.milliseconds, newest.sequence, 2)

    greeting, events = await _first(Listener(service.outbox, service.outbox_reader, lambda _: True, middle), service, 2)

    assert f"id: {middle}\n".encode() in greeting
    assert events.count(b"event: transition") == 1
    assert f"id: {middle._replace(number=3)}\n".encode() in events
