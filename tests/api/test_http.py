"""Requests as sockets bring them: in pieces, too many at once, with offers, expectations and odd addresses."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.api.wire import (
    KEEP_ALIVE_SECONDS,
    PATIENCE_SECONDS,
    ByHand,
    Caller,
    Desk,
    Wire,
    turns,
    until,
    wired,
)
from tideq.api.http11.connection import MAX_AHEAD, MAX_AHEAD_BYTES, MAX_UNREAD_BYTES
from tideq.api.server import listen, server_for

GET = b"GET / HTTP/1.1\r\nHost: tideq\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: tideq\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: tideq\r\nTransfer-Encoding: chunked\r\n\r\n"
EXPECTING = b"POST / HTTP/%b\r\nHost: tideq\r\nContent-Length: 4\r\nExpect: %b\r\n\r\n"
OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n",
}
WORD = b"HTTP/1.1 100 Continue\r\n\r\n"
FLOODS = {
    "requests": GET * (MAX_AHEAD + 1),
    "a large body": POST % (2 * MAX_AHEAD_BYTES) + b"x" * MAX_AHEAD_BYTES,
    "a long head": GET[:-2] + b"X: " + b"x" * MAX_AHEAD_BYTES,
    "no requests": b"\x00" * (MAX_AHEAD_BYTES + 1),
}
FLOOD_BYTES = 64 * 2**20
MAX_READ_BYTES = 2**20
"""More than the loop reads at once, and much less than it is sent."""


TE = b"POST / HTTP/1.1\r\nHost: tideq\r\nTransfer-Encoding: %b\r\n\r\n0\r\n\r\n"
HEADS = {
    "two hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "the same host twice": (b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400),
    "two hosts in HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "no host beside a target that names one": (b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
    "a user in the host": (b"GET / HTTP/1.1\r\nHost: me@tideq\r\n\r\n", 400),
    "a path in the host": (b"GET / HTTP/1.1\r\nHost: tideq/a\r\n\r\n", 400),
    "two hosts in one": (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    "a user in the target": (b"GET http://me@tideq/ HTTP/1.1\r\nHost: tideq\r\n\r\n", 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "HTTP/0.9": (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 400),
    "HTTP/2.0": (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "gzip in chunks": (TE % b"gzip, chunked", 501),
    "gzip and chunks in two headers": (TE % b"gzip\r\ntransfer-encoding: chunked", 501),
    "chunked twice": (TE % b"chunked, chunked", 400),
    "chunks in HTTP/1.0": ((TE % b"chunked").replace(b"/1.1", b"/1.0"), 400),
    "a coding that is not the last": (TE % b"chunked, gzip", 400),
}


@pytest.fixture
async def connection() -> AsyncIterator[ByHand]:
    connection = ByHand()
    yield connection
    await connection.close()


class TestOrder:
    async def test_requests_sent_together_are_answered_in_order_one_at_a_time(self, desk: Desk, caller: Caller) -> None:
        caller.send(b"".join(GET.replace(b"/", b"/%d" % number, 1) for number in range(3)))

        for number in range(3):
            call = await desk.call()
            assert call.scope["path"] == f"/{number}"
            assert await desk.is_left_alone()
            await call.answer(b"%d" % number)

        assert [(await caller.answer()).body for _ in range(3)] == [b"0", b"1", b"2"]

    async def test_a_flood_behind_a_long_answer_is_not_read(self, desk: Desk, wire: Wire) -> None:
        with socket.create_connection(("127.0.0.1", wire.port)) as flooding:
            flooding.setblocking(False)
            flooding.send(GET)
            await desk.call()

            sent = await _send_all_it_takes(flooding)

            assert wire.connection.is_read_paused
            assert sent < FLOOD_BYTES
            assert await desk.is_left_alone()

    async def test_who_leaves_behind_requests_of_its_own_is_seen_to_leave(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET + GET)
        call = await desk.call()
        assert await call.body() == b""

        await caller.leave()

        assert (await call.receive())["type"] == "http.disconnect"
        assert await desk.is_left_alone()

    async def test_who_leaves_behind_what_is_no_request_is_seen_to_leave(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET + b"\x00" * 1_000)
        call = await desk.call()
        assert await call.body() == b""

        await caller.leave()

        assert (await call.receive())["type"] == "http.disconnect"

    @pytest.mark.parametrize("behind", FLOODS.values(), ids=FLOODS)
    @pytest.mark.parametrize("is_first", [True, False], ids=["flood first", "wait first"])
    async def test_who_waits_and_floods_is_turned_away(self, connection: ByHand, behind: bytes, is_first: bool) -> None:
        """Whether it leaves could not be seen any more."""
        connection.send(GET)
        call = await connection.desk.call()
        assert await call.body() == b""
        if is_first:
            connection.send(behind)
            assert not connection.line.is_read

        looking = asyncio.ensure_future(call.receive())
        await turns()
        if not is_first:
            assert not connection.line.is_closed
            connection.send(behind)

        assert (await looking)["type"] == "http.disconnect"
        assert (connection.line.is_closed, connection.line.said[:12]) == (True, b"HTTP/1.1 400")

    async def test_what_is_sent_ahead_is_counted_anew_for_every_answer(self, connection: ByHand) -> None:
        ahead = POST % (MAX_AHEAD_BYTES // 2) + b"x" * (MAX_AHEAD_BYTES // 2)
        connection.send(GET)

        for _ in range(5):
            connection.send(ahead)
            assert connection.line.is_read
            await (await connection.desk.call()).answer()
            await turns()

    async def test_what_was_not_read_is_answered_later(self) -> None:
        request = GET[:-2] + b"X-Padding: " + b"x" * 8_192 + b"\r\n\r\n"
        count, may_answer = 2 * MAX_READ_BYTES // len(request), asyncio.Event()

        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await may_answer.wait()
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})

        async with wired(app) as wire:
            caller = await wire.caller()
            caller.send(request * count)
            await until(lambda: len(wire.state.connections) == 1 and wire.connection.is_read_paused)

            may_answer.set()

            assert {(await caller.answer()).status for _ in range(count)} == {204}
            assert wire.state.total_requests == count

    async def test_what_waits_behind_an_answer_is_not_late_while_we_do_not_read_it(self, connection: ByHand) -> None:
        count = MAX_AHEAD + 2
        connection.send(GET * count + GET[:10])
        assert not connection.line.is_read

        connection.time.advance(10 * PATIENCE_SECONDS)
        assert not connection.line.is_closed
        for _ in range(count):
            await (await connection.desk.call()).answer()
        connection.send(GET[10:])

        await (await connection.desk.call()).answer()


class TestHeads:
    """RFC 9112, where httptools takes more than it allows."""

    @pytest.mark.parametrize(("head", "status"), HEADS.values(), ids=HEADS)
    async def test_a_head_that_may_be_read_in_two_ways_is_refused(
        self, connection: ByHand, head: bytes, status: int
    ) -> None:
        connection.send(head)

        assert (connection.line.said[:13], connection.line.is_closed) == (b"HTTP/1.1 %d " % status, True)
        assert await connection.desk.is_left_alone()

    @pytest.mark.parametrize(
        "host", [b"", b"tideq", b"tideq:", b"a_b:80", b"[::1]", b"[fe80::1]:8080", b"%41", b"1.2.3.4"]
    )
    async def test_a_host_is_whatever_the_grammar_allows(self, connection: ByHand, host: bytes) -> None:
        connection.send(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host)

        assert (await connection.desk.call()).headers[b"host"] == host

    async def test_http_1_0_needs_no_host(self, connection: ByHand) -> None:
        connection.send(b"GET / HTTP/1.0\r\n\r\n")

        await (await connection.desk.call()).answer()

        assert connection.line.said.startswith(b"HTTP/1.1 200 ")


class TestBodies:
    @pytest.mark.parametrize("size", [1, 7, 1_000], ids="in pieces of {}".format)
    async def test_a_chunked_body_is_read_whole(self, connection: ByHand, size: int) -> None:
        request = CHUNKED + b"4\r\nbody\r\n5;extension=1\r\n in 2\r\n0\r\n\r\n"

        for start in range(0, len(request), size):
            connection.send(request[start : start + size])

        assert await (await connection.desk.call()).body() == b"body in 2"

    async def test_trailers_do_not_become_headers(self, desk: Desk, caller: Caller) -> None:
        caller.send(CHUNKED + b"1\r\na\r\n0\r\nAuthorization: Bearer x\r\nX-Last: 1\r\n\r\n" + GET)

        chunked = await desk.call()
        assert await chunked.body() == b"a"
        await chunked.answer()
        following = await desk.call()

        assert chunked.headers == {b"host": b"tideq", b"transfer-encoding": b"chunked"}
        assert following.headers == {b"host": b"tideq"}

    async def test_a_length_told_twice_over_is_refused(self, desk: Desk, caller: Caller) -> None:
        caller.send(CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\n") + b"0\r\n\r\n")

        refused = await caller.answer()

        assert (refused.status, refused.headers[b"connection"], await caller.rest()) == (400, b"close", b"")
        assert await desk.is_left_alone()

    async def test_a_large_body_nobody_reads_is_left_with_its_sender(
        self, desk: Desk, wire: Wire, caller: Caller
    ) -> None:
        body = bytes(range(256)) * (FLOOD_BYTES // 8 // 256)
        caller.send(POST % len(body) + body)
        call = await desk.call()
        await until(lambda: wire.connection.is_read_paused)
        first = await call.receive()

        rest = await call.body()

        assert MAX_UNREAD_BYTES < len(first["body"]) <= MAX_READ_BYTES
        assert first["body"] + rest == body

    async def test_reading_stops_above_64_kib_and_goes_on_when_they_are_read(self, connection: ByHand) -> None:
        connection.send(POST % 1_000_000)
        call = await connection.desk.call()
        connection.send(b"a" * MAX_UNREAD_BYTES)
        assert connection.line.is_read
        connection.send(b"b")
        assert not connection.line.is_read

        read = [await call.receive()]
        reading = asyncio.ensure_future(call.receive())
        await turns()
        assert connection.line.is_read
        connection.send(b"c")
        read.append(await reading)

        assert [each["body"] for each in read] == [b"a" * MAX_UNREAD_BYTES + b"b", b"c"]

    async def test_a_body_nobody_wants_is_read_past_once_it_is_answered(self, desk: Desk, caller: Caller) -> None:
        caller.send(POST % MAX_READ_BYTES + b" " * MAX_READ_BYTES + GET)

        await (await desk.call()).answer(b"first")
        await (await desk.call()).answer(b"second")

        assert [(await caller.answer()).body for _ in range(2)] == [b"first", b"second"]

    async def test_who_leaves_inside_a_body_is_not_answered(self, desk: Desk, wire: Wire, caller: Caller) -> None:
        caller.send(POST % 100 + b"half")
        call = await desk.call()
        assert (await call.receive())["body"] == b"half"

        await caller.leave()

        assert (await call.receive())["type"] == "http.disconnect"
        await call.answer(b"to nobody")
        await until(lambda: not wire.state.tasks and not wire.state.connections)
        assert wire.state.total_requests == 0

    async def test_who_leaves_with_requests_waiting_has_them_forgotten(self, connection: ByHand) -> None:
        connection.send(GET + GET)
        call = await connection.desk.call()

        connection.protocol.connection_lost(None)
        await call.answer()

        assert await connection.desk.is_left_alone()
        assert not connection.line.writes


class TestTheWord:
    """100 Continue, for whoever keeps a body back until it is wanted."""

    @pytest.mark.parametrize("case", [b"100-continue", b"100-Continue"], ids=["usual", "odd"])
    async def test_it_is_said_once_and_when_the_body_is_asked_for(self, connection: ByHand, case: bytes) -> None:
        connection.send(EXPECTING % (b"1.1", case))
        call = await connection.desk.call()
        assert not connection.line.writes

        for piece in (b"bo", b"dy"):
            receiving = asyncio.ensure_future(call.receive())
            await turns()
            assert connection.line.writes == [WORD]
            connection.send(piece)
            assert (await receiving)["body"] == piece
        await call.answer()

        assert connection.line.said.count(b"100 Continue") == 1

    async def test_it_is_not_said_to_who_is_answered_without_it(self, connection: ByHand) -> None:
        connection.send(EXPECTING % (b"1.1", b"100-continue"))

        call = await connection.desk.call()
        await call.begin(413, [(b"content-length", b"0")])
        receiving = asyncio.ensure_future(call.receive())
        await turns()
        await call.go_on(more=False)

        assert connection.line.said.startswith(b"HTTP/1.1 413 ")
        assert b" 100 " not in connection.line.said
        assert (await receiving)["type"] == "http.disconnect"

    async def test_it_is_not_said_to_who_expects_nothing(self, connection: ByHand) -> None:
        connection.send(EXPECTING % (b"1.1", b"100-continue") + b"body" + POST % 4)
        await (await connection.desk.call()).answer()

        receiving = asyncio.ensure_future((await connection.desk.call()).receive())
        await turns()
        connection.send(b"body")
        await receiving

        assert b" 100 " not in connection.line.said

    async def test_it_is_not_said_in_http_1_0(self, connection: ByHand) -> None:
        connection.send(EXPECTING % (b"1.0", b"100-continue"))

        receiving = asyncio.ensure_future((await connection.desk.call()).receive())
        await turns()

        assert not connection.line.writes
        connection.send(b"body")
        await receiving


class TestTheEnd:
    @pytest.mark.parametrize(
        "request_",
        [
            GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
            GET.replace(b"\r\n\r\n", b"\r\nConnection: foo, Close\r\n\r\n"),
            GET.replace(b"1.1", b"1.0"),
            GET.replace(b"1.1", b"1.0").replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"),
        ],
        ids=["asked for", "among others", "of HTTP 1.0", "although HTTP 1.0 would go on"],
    )
    async def test_a_last_request_is_answered_and_nothing_after_it(
        self, desk: Desk, caller: Caller, request_: bytes
    ) -> None:
        caller.send(request_ + GET)

        await (await desk.call()).answer(b"last")

        answer = await caller.answer()
        assert (answer.headers[b"connection"], answer.body) == (b"close", b"last")
        assert await caller.rest() == b""
        assert await desk.is_left_alone()

    async def test_a_request_in_http_1_1_leaves_the_connection_open(self, desk: Desk, caller: Caller) -> None:
        for _ in range(2):
            caller.send(GET)
            await (await desk.call()).answer()
            assert b"connection" not in (await caller.answer()).headers

    @pytest.mark.parametrize("offer", OFFERS)
    async def test_an_offered_upgrade_is_answered_plainly_and_is_the_last(
        self, desk: Desk, caller: Caller, offer: str
    ) -> None:
        caller.send(b"GET / HTTP/1.1\r\nHost: tideq\r\n" + OFFERS[offer] + b"\r\n")

        call = await desk.call()
        caller.send(b"PRI * of something else\r\n\r\n" + GET)
        await turns()
        await call.answer(b"plain")

        answer = await caller.answer()
        assert (answer.status, answer.headers[b"connection"], answer.body) == (200, b"close", b"plain")
        assert await caller.rest() == b""
        assert await desk.is_left_alone()

    @pytest.mark.parametrize(
        ("framing", "sent"),
        [(b"Content-Length: 4\r\n", b"body"), (b"Transfer-Encoding: chunked\r\n", b"4\r\nbody\r\n0\r\n\r\n")],
        ids=["of known length", "chunked"],
    )
    @pytest.mark.parametrize("pieces", [1, 2])
    async def test_a_body_that_comes_with_an_offer_is_read(
        self, connection: ByHand, framing: bytes, sent: bytes, pieces: int
    ) -> None:
        request = b"POST / HTTP/1.1\r\nHost: tideq\r\n" + OFFERS["h2c"] + framing + b"\r\n" + sent
        middle = len(request) - 3 if pieces == 2 else 0

        connection.send(request[:middle])
        connection.send(request[middle:])
        call = await connection.desk.call()
        body = await call.body()
        await call.answer()

        assert (body, connection.line.is_closed) == (b"body", True)
        assert b"\r\nconnection: close\r\n" in connection.line.said

    async def test_what_is_under_way_at_a_stop_is_answered_and_told_of_it(self, desk: Desk) -> None:
        server, listener = server_for(desk), listen("127.0.0.1", 0)
        port, serving = listener.getsockname()[1], asyncio.create_task(server.serve(sockets=[listener]))
        caller = Caller(*await asyncio.open_connection("127.0.0.1", port))
        caller.send(GET + GET)
        call = await desk.call()

        server.should_exit = True
        await until(lambda: listener.fileno() < 0)
        await turns()
        await call.answer(b"still")

        answer = await caller.answer()
        assert (answer.headers[b"connection"], answer.body, await caller.rest()) == (b"close", b"still", b"")
        assert await desk.is_left_alone()
        await caller.leave()
        await serving

    async def test_who_asks_nothing_at_a_stop_is_let_go(self, connection: ByHand) -> None:
        connection.send(GET)
        await (await connection.desk.call()).answer()

        connection.protocol.shutdown()

        assert connection.line.is_closed


class TestIdleness:
    async def test_who_asks_nothing_more_is_let_go_without_a_word(self, connection: ByHand) -> None:
        connection.send(GET)
        await (await connection.desk.call()).answer()
        said = connection.line.said

        connection.time.advance(KEEP_ALIVE_SECONDS - 1)
        assert not connection.line.is_closed
        connection.time.advance(1 + PATIENCE_SECONDS)

        assert (connection.line.is_closed, connection.line.said) == (True, said)

    async def test_who_is_being_answered_is_not_idle(self, connection: ByHand) -> None:
        connection.send(GET)
        await (await connection.desk.call()).answer()
        connection.time.advance(KEEP_ALIVE_SECONDS - 1)
        connection.send(GET)
        call = await connection.desk.call()

        connection.time.advance(10 * KEEP_ALIVE_SECONDS)
        await call.answer()
        connection.time.advance(KEEP_ALIVE_SECONDS - 1)

        assert not connection.line.is_closed

    async def test_who_was_answered_before_its_body_had_come_is_let_go_too(self, connection: ByHand) -> None:
        connection.send(POST % 4 + b"bo")
        await (await connection.desk.call()).answer()
        connection.send(b"dy")

        connection.time.advance(KEEP_ALIVE_SECONDS - 1)
        assert not connection.line.is_closed
        connection.time.advance(1 + PATIENCE_SECONDS)

        assert connection.line.is_closed

    async def test_a_connection_that_is_lost_leaves_nothing_behind(self, connection: ByHand) -> None:
        connection.protocol.connection_lost(None)

        assert connection.time.is_still
        assert not connection.state.connections


ADDRESSES = (
    b"/",
    b"/api/v1/tasks",
    b"/a-b_c.d~e",
    b"/a//b",
    b"//a",
    b"//a/b?c",
    b"/a?",
    b"/a?b=c&d=%20e",
    b"/a?b?c",
    b"/a;b=c",
    b"/w%20%C3%A9/%2F",
    b"/%",
    b"/%zz",
    b"/%ff",
    b"/a#b",
    b"/a?b#c",
    b"/a:b@c",
    b"/a/../b/./c",
    b"/caf\xc3\xa9",
    b"*",
    b"a/b",
    b"http://elsewhere/a?b",
    b"http://elsewhere:80/",
    b"http://elsewhere",
    b"https://elsewhere/a",
    b"elsewhere:80",
    b"?a",
)


@pytest.mark.parametrize("address", ADDRESSES, ids=bytes.decode)
@pytest.mark.parametrize("method", [b"GET", b"OPTIONS", b"CONNECT"], ids=bytes.decode)
async def test_an_address_arrives_as_uvicorn_gives_it(method: bytes, address: bytes) -> None:
    request = b"%b %b HTTP/1.1\r\nHost: Tideq\r\nX-Odd: \xe9\r\nX-odd: 2\r\n\r\n" % (method, address)

    ours, theirs = [await _scope_of(request, protocol) for protocol in (None, HttpToolsProtocol)]

    assert _without_host(ours) == _without_host(theirs)


@pytest.mark.parametrize(
    ("target", "host"),
    [
        (b"/a", b"tideq:8080"),
        (b"http://elsewhere/a?b", b"elsewhere"),
        (b"https://elsewhere:81/", b"elsewhere:81"),
        (b"http://[::1]:8080/", b"[::1]:8080"),
        (b"*", b"tideq:8080"),
    ],
)
async def test_a_host_in_the_target_goes_before_the_header(connection: ByHand, target: bytes, host: bytes) -> None:
    connection.send(b"OPTIONS %b HTTP/1.1\r\nHost: tideq:8080\r\n\r\n" % target)

    assert (await connection.desk.call()).headers[b"host"] == host


def _without_host(scope: Any) -> Any:
    """uvicorn leaves the header as it came, where the target names another host."""
    if isinstance(scope, bytes):
        return scope
    return {**scope, "headers": [header for header in scope["headers"] if header[0] != b"host"]}


async def _scope_of(request: bytes, protocol: Any) -> Any:
    """As the application gets it, or the refusal's first line."""
    connection = ByHand(protocol)
    connection.send(request)
    try:
        if connection.line.is_closed:
            return connection.line.said.partition(b"\r\n")[0]
        return (await connection.desk.call()).scope
    finally:
        await connection.close()


async def _send_all_it_takes(flooding: socket.socket) -> int:
    """Until nothing more is taken, however often the loop comes by."""
    block, sent, refusals = GET * (65_536 // len(GET)), 0, 0
    while refusals < 100 and sent < FLOOD_BYTES:
        with contextlib.suppress(BlockingIOError):
            sent += flooding.send(block)
            refusals = -1
        refusals += 1
        await asyncio.sleep(0)
    return sent
