"""A response's head and body are one write, and no head waits for a body that is not there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.api.wire import ByHand, Call, turns

pytestmark = pytest.mark.own_protocol
GET = b"GET / HTTP/1.1\r\nHost: tideq\r\n\r\n"
LENGTH = [(b"content-length", b"8")]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n"


@pytest.fixture
async def connection() -> AsyncIterator[ByHand]:
    connection = ByHand()
    yield connection
    await connection.close()


async def called(connection: ByHand, request: bytes = GET) -> Call:
    connection.send(request)
    return await connection.desk.call()


async def test_a_head_leaves_with_the_body_that_follows_at_once(connection: ByHand) -> None:
    call = await called(connection)

    await call.begin(headers=LENGTH)
    await call.go_on(b"body")
    await call.go_on(b"more", more=False)
    await turns()

    assert connection.line.writes == [HEAD + b"body", b"more"]


async def test_a_head_whose_body_does_not_come_leaves_in_the_next_turn(connection: ByHand) -> None:
    call = await called(connection)

    await call.begin(headers=LENGTH)
    await asyncio.sleep(0)
    await call.go_on(b"body")
    await call.go_on(b"more", more=False)

    assert connection.line.writes == [HEAD, b"body", b"more"]


async def test_a_whole_answer_is_one_write(connection: ByHand) -> None:
    call = await called(connection)

    await call.answer(b"bodymore")
    await turns()

    assert (connection.line.writes, connection.line.is_closed) == ([HEAD + b"bodymore"], False)


async def test_closing_loses_no_head(connection: ByHand) -> None:
    """The line refuses to be written to once it is closed."""
    call = await called(connection)

    await call.begin(headers=LENGTH)
    call.fail(ZeroDivisionError())
    await turns()

    assert (connection.line.writes, connection.line.is_closed) == ([HEAD], True)


async def test_an_answer_that_ends_the_connection_is_written_before_it_ends(connection: ByHand) -> None:
    call = await called(connection, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    await call.answer(b"bodymore")

    told = HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert (connection.line.writes, connection.line.is_closed) == ([told + b"bodymore"], True)


async def test_an_answer_waits_until_there_is_room_for_it(connection: ByHand) -> None:
    call = await called(connection)
    connection.protocol.pause_writing()
    sending = asyncio.ensure_future(call.answer(b"bodymore"))
    await turns()
    assert not connection.line.writes

    connection.protocol.resume_writing()
    await sending
    await turns()

    assert connection.line.said == HEAD + b"bodymore"


async def test_an_answer_nobody_waits_for_is_not_written(connection: ByHand) -> None:
    call = await called(connection)
    connection.protocol.pause_writing()
    sending = asyncio.ensure_future(call.answer(b"bodymore"))
    await turns()

    connection.protocol.connection_lost(None)
    await sending
    await turns()

    assert not connection.line.writes


async def test_a_head_whose_reader_has_gone_is_not_written(connection: ByHand) -> None:
    call = await called(connection)

    await call.begin(headers=LENGTH)
    connection.protocol.connection_lost(None)
    await turns()

    assert not connection.line.writes


async def test_an_answer_that_is_complete_cannot_go_on(connection: ByHand) -> None:
    call = await called(connection)
    await call.begin(headers=LENGTH)
    await call.go_on(b"bodymore", more=False)

    with pytest.raises(RuntimeError, match="complete"):
        await call.go_on(b"still more", more=False)

    call.end()
    assert connection.line.writes == [HEAD + b"bodymore"]
