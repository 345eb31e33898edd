"""An exchange's answer: its head and body are one write, and no head waits for a body that is not there."""

import asyncio
from typing import Any

import pytest
from uvicorn.server import ServerState

from tests.api.wire import Line, turns
from tideq.api.edge.disconnect import ClientDisconnected
from tideq.api.http11.request_cycle import RequestCycle

LENGTH = [(b"content-length", b"8")]
START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": LENGTH}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n"


class Carrier:
    """A connection that notes what it is told; with room for what is said, or without."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport: Any = Line()
        self.server_state = ServerState()
        self.answered_count = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def is_full(self) -> bool:
        return not self._room.is_set()

    def fill(self) -> None:
        self._room.clear()

    def empty(self) -> None:
        self._room.set()

    async def drain(self) -> None:
        await self._room.wait()

    def resume_reading(self) -> None: ...
    def watch_disconnect(self) -> None: ...

    def on_answered(self) -> None:
        self.answered_count += 1


@pytest.fixture
async def carrier() -> Carrier:
    return Carrier()


def exchange_on(carrier: Carrier, *, keeps_alive: bool = True) -> RequestCycle:
    scope = {"method": "POST", "path": "/"}
    return RequestCycle(carrier, scope, keeps_alive=keeps_alive, expects_continue=False)


def part(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def test_a_head_leaves_with_the_body_that_follows_at_once(carrier: Carrier) -> None:
    exchange = exchange_on(carrier)

    for message in (START, part(b"body", more=True), part(b"more", more=False)):
        await exchange.send(message)
    await turns()

    assert carrier.transport.writes == [HEAD + b"body", b"more"]


async def test_a_head_whose_body_does_not_come_leaves_in_the_next_turn(carrier: Carrier) -> None:
    exchange = exchange_on(carrier)

    await exchange.send(START)
    await asyncio.sleep(0)
    for message in (part(b"body", more=True), part(b"more", more=False)):
        await exchange.send(message)

    assert carrier.transport.writes == [HEAD, b"body", b"more"]


async def test_a_whole_answer_is_one_write(carrier: Carrier) -> None:
    await exchange_on(carrier).respond(200, LENGTH, b"bodymore")
    await turns()

    assert carrier.transport.writes == [HEAD + b"bodymore"]
    assert (carrier.answered_count, carrier.transport.is_closed) == (1, False)


async def test_closing_loses_no_head(carrier: Carrier) -> None:
    """The line refuses to be written to once it is closed."""

    async def break_down(_scope: Any, _receive: Any, send: Any) -> None:
        await send(START)
        raise ZeroDivisionError

    await exchange_on(carrier).run(break_down, None)
    await turns()

    assert (carrier.transport.writes, carrier.transport.is_closed) == ([HEAD], True)


async def test_an_answer_that_ends_the_connection_is_written_before_it_ends(carrier: Carrier) -> None:
    await exchange_on(carrier, keeps_alive=False).respond(200, LENGTH, b"bodymore")

    told = HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert (carrier.transport.writes, carrier.transport.is_closed) == ([told + b"bodymore"], True)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_an_answer_waits_until_there_is_room_for_it(carrier: Carrier, is_whole: bool) -> None:
    exchange = exchange_on(carrier)
    carrier.fill()
    sending = asyncio.ensure_future(exchange.respond(200, LENGTH, b"bodymore") if is_whole else exchange.send(START))
    await turns()
    assert not carrier.transport.writes

    carrier.empty()
    await sending
    await turns()

    assert carrier.transport.said.startswith(HEAD)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_an_answer_nobody_waits_for_is_not_written(carrier: Carrier, is_whole: bool) -> None:
    exchange = exchange_on(carrier)
    carrier.fill()
    sending = asyncio.ensure_future(exchange.respond(200, LENGTH, b"bodymore") if is_whole else exchange.send(START))
    await turns()

    exchange.disconnect()
    carrier.empty()
    await sending
    await turns()

    assert (carrier.transport.writes, carrier.answered_count) == ([], 0)


async def test_a_head_whose_reader_has_gone_is_not_written(carrier: Carrier) -> None:
    exchange = exchange_on(carrier)

    await exchange.send(START)
    exchange.disconnect()
    await turns()

    assert not carrier.transport.writes


async def test_an_answer_that_is_complete_cannot_go_on(carrier: Carrier) -> None:
    exchange = exchange_on(carrier)
    await exchange.respond(200, LENGTH, b"bodymore")

    with pytest.raises(RuntimeError, match="complete"):
        await exchange.send(part(b"still more", more=False))

    assert carrier.transport.writes == [HEAD + b"bodymore"]


async def test_a_body_is_whole_once_it_has_ended(carrier: Carrier) -> None:
    exchange = exchange_on(carrier)
    reading = asyncio.ensure_future(exchange.body())
    for piece in (b"a", b"b", b"c"):
        exchange.feed(piece)
        await turns()
    assert not reading.done()

    exchange.end_body()

    assert await reading == b"abc"


async def test_a_body_whose_sender_leaves_is_no_body(carrier: Carrier) -> None:
    exchange = exchange_on(carrier)
    exchange.feed(b"a")
    reading = asyncio.ensure_future(exchange.body())
    await turns()

    exchange.disconnect()

    with pytest.raises(ClientDisconnected):
        await reading
