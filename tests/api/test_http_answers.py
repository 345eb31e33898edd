"""Answers as sockets see them: how long they are, how they end, and what becomes of those that go wrong."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.api.wire import Application, ByHand, Caller, Desk, Wire, turns, until, wired
from tideq.api.http11.connection import MAX_WAITING

GET = b"GET / HTTP/1.1\r\nHost: tideq\r\n\r\n"
HEAD = GET.replace(b"GET", b"HEAD")
BODY_BYTES = 32 * 2**20
"""More than a connection that nobody reads takes."""


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def saying(*messages: dict[str, Any], then: Exception | None = None) -> Application:
    """An application that answers so, whatever it is asked."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)
        if then is not None:
            raise then

    return app


async def heard_from(app: Application, request: bytes = GET) -> tuple[bytes, list[Any]]:
    """All that a caller hears whose request is the connection's last by what comes of it, and what is logged."""
    async with wired(app) as wire:
        caller = await wire.caller()
        with capture_logs() as logs:
            caller.send(request)
            heard = await caller.rest()
    return heard, logs


class TestLength:
    async def test_an_answer_without_a_length_ends_with_its_connection_in_http_1_0(self) -> None:
        heard, _ = await heard_from(
            saying(start(), part(b"first", more=True), part(b"last")), GET.replace(b"1.1", b"1.0")
        )

        assert heard == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nfirstlast"

    async def test_an_answer_may_have_a_status_that_nobody_named(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET)

        await (await desk.call()).answer(b"so", status=299)

        assert (await caller.answer()).status == 299

    async def test_a_length_is_known_however_it_is_spelt(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET)
        call = await desk.call()

        await call.begin(200, [(b"Content-Length", b"2")])
        await call.go_on(b"so", more=False)

        assert b"chunked" not in await caller.head()

    async def test_an_answer_without_a_length_is_chunked(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET)
        call = await desk.call()

        await call.begin()
        for body in (b"first", b"", b"s" * 17):
            await call.go_on(body)
        await call.go_on(more=False)

        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        assert await caller.head() == head
        assert await caller.reader.readuntil(b"0\r\n\r\n") == b"5\r\nfirst\r\n11\r\n" + b"s" * 17 + b"\r\n0\r\n\r\n"

    @pytest.mark.parametrize("told", [[], [(b"content-length", b"4")]], ids=["of no length", "of some length"])
    async def test_an_answer_to_head_has_no_body(
        self, desk: Desk, caller: Caller, told: list[tuple[bytes, bytes]]
    ) -> None:
        caller.send(HEAD + GET)
        call = await desk.call()
        await call.begin(headers=told)
        await call.go_on(b"body", more=False)
        call.end()
        await (await desk.call()).answer(b"next")

        answer = await caller.answer(has_body=False)

        assert answer.headers == dict(told)
        assert (await caller.answer()).body == b"next"

    @pytest.mark.parametrize("status", [204, 304])
    async def test_an_answer_that_can_have_no_body_tells_of_none(self, desk: Desk, caller: Caller, status: int) -> None:
        caller.send(GET + GET)
        call = await desk.call()
        await call.begin(status)
        await call.go_on(more=False)
        call.end()
        await (await desk.call()).answer(b"next")

        answer = await caller.answer(has_body=False)

        assert (answer.status, answer.headers) == (status, {})
        assert (await caller.answer()).body == b"next"

    @pytest.mark.parametrize(
        ("parts", "heard_body"),
        [
            ([part(b"bod")], b""),
            ([part(b"body and more")], b""),
            ([part(b"bo", more=True), part(b"d")], b"bo"),
            ([part(b"body", more=True), part(b" and more")], b"body"),
            ([part(b"bo", more=True), part(b"dy and", more=True), part(b" more")], b"bo"),
        ],
        ids=["shorter", "longer", "shorter in the end", "longer in the end", "longer before the end"],
    )
    async def test_an_answer_that_is_not_as_long_as_told_is_broken_off_and_logged(
        self, parts: list[dict[str, Any]], heard_body: bytes
    ) -> None:
        heard, logs = await heard_from(saying(start((b"content-length", b"4")), *parts))

        assert heard == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n" + heard_body
        assert [each["log_level"] for each in logs] == ["error"]

    async def test_a_body_where_there_can_be_none_is_broken_off(self) -> None:
        heard, logs = await heard_from(saying(start(status=204), part(b"body")))

        assert heard == b"HTTP/1.1 204 No Content\r\n\r\n"
        assert [each["log_level"] for each in logs] == ["error"]


class TestFailure:
    async def test_an_application_that_raises_is_answered_for_and_ends_the_connection(self) -> None:
        heard, logs = await heard_from(saying(then=ZeroDivisionError("nobody's business")), GET + GET)

        head, _, body = heard.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert head.endswith(b"\r\nconnection: close")
        assert body == b"Internal Server Error"
        assert [type(each["exc_info"]) for each in logs] == [ZeroDivisionError]

    async def test_an_application_that_says_nothing_is_answered_for(self) -> None:
        heard, logs = await heard_from(saying())

        assert heard.startswith(b"HTTP/1.1 500 ")
        assert [each["event"] for each in logs] == ["response missing"]

    async def test_a_failure_is_no_body_to_head(self) -> None:
        heard, _ = await heard_from(saying(then=ZeroDivisionError()), HEAD)

        assert heard.startswith(b"HTTP/1.1 500 ")
        assert heard.endswith(b"\r\n\r\n")

    @pytest.mark.parametrize("failure", [ZeroDivisionError(), None], ids=["raised", "silent"])
    async def test_an_answer_that_has_begun_and_does_not_end_is_broken_off(self, failure: Exception | None) -> None:
        heard, _ = await heard_from(saying(start(), part(b"half", more=True), then=failure))

        assert heard == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n"

    async def test_a_failure_after_the_end_takes_nothing_back(self) -> None:
        app = saying(start((b"content-length", b"4")), part(b"body"), then=ZeroDivisionError())

        async with wired(app) as wire:
            caller = await wire.caller()
            caller.send(GET + GET)
            with capture_logs() as logs:
                answers = [await caller.answer() for _ in range(2)]
                await until(lambda: len(logs) == 2)

        assert [each.body for each in answers] == [b"body", b"body"]

    @pytest.mark.parametrize(
        "header",
        [
            (b"x-odd", b"a\r\nset-cookie: b"),
            (b"x-odd", b"a\nb"),
            (b"x-odd", b"a\0b"),
            (b"x-odd\r\nset-cookie", b"b"),
            (b"x odd", b"a"),
            (b"x-odd:", b"a"),
            (b"", b"a"),
        ],
    )
    async def test_a_header_that_would_break_its_line_is_refused(self, header: tuple[bytes, bytes]) -> None:
        heard, logs = await heard_from(saying(start(header), part(b"body")))

        assert heard.startswith(b"HTTP/1.1 500 ")
        assert b"set-cookie" not in heard
        assert b"odd" not in heard
        assert [each["log_level"] for each in logs] == ["error"]

    async def test_what_is_broken_off_is_not_followed_by_what_waited(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET + GET)
        call = await desk.call()
        await call.begin()

        call.end()

        assert await caller.rest() == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        assert await desk.is_left_alone()

    async def test_an_application_that_is_stopped_ends_the_connection(
        self, desk: Desk, wire: Wire, caller: Caller
    ) -> None:
        caller.send(GET)
        await desk.call()

        for task in wire.state.tasks:
            task.cancel()

        assert await caller.rest() == b""


class TestRoom:
    async def test_an_answer_that_nobody_reads_waits_with_the_application(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET)
        call = await desk.call()
        await call.begin(headers=[(b"content-length", b"%d" % (2 * BODY_BYTES))])
        await call.go_on(b"a" * BODY_BYTES)
        sending = asyncio.ensure_future(call.go_on(b"b" * BODY_BYTES, more=False))
        await turns()
        assert not sending.done()

        answer = await caller.answer()

        await sending
        assert answer.body == b"a" * BODY_BYTES + b"b" * BODY_BYTES

    async def test_who_leaves_a_long_answer_holds_nobody_up(self, desk: Desk, wire: Wire, caller: Caller) -> None:
        caller.send(GET)
        call = await desk.call()
        await call.begin()
        await call.go_on(b"a" * BODY_BYTES)
        sending = asyncio.ensure_future(call.go_on(b"b"))
        await turns()
        assert not sending.done()

        await caller.leave()

        await sending
        assert (await call.receive())["type"] == "http.disconnect"
        call.end()
        await until(lambda: not wire.state.tasks and not wire.state.connections)


class TestRefusals:
    async def test_nonsense_behind_a_request_does_not_become_its_answer(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET)
        call = await desk.call()
        caller.send(b"nonsense\r\n\r\n")
        await turns()

        await call.answer(b"first")

        first = await caller.answer()
        assert (first.status, first.body, first.headers[b"connection"]) == (200, b"first", b"close")
        assert await caller.rest() == b""

    async def test_requests_without_end_behind_one_are_not_kept(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET * (MAX_WAITING + 2))
        call = await desk.call()
        await turns()

        await call.answer(b"first")

        assert (await caller.answer()).headers[b"connection"] == b"close"
        assert await caller.rest() == b""

    async def test_nonsense_after_an_answer_is_refused_after_it(self, desk: Desk, caller: Caller) -> None:
        caller.send(GET)
        await (await desk.call()).answer(b"first")
        first = await caller.answer()

        caller.send(b"nonsense\r\n\r\n")

        refused = await caller.answer()
        assert (first.body, refused.status, refused.headers[b"connection"]) == (b"first", 400, b"close")
        assert await caller.rest() == b""

    async def test_nonsense_inside_a_body_is_refused_instead_of_an_answer(self) -> None:
        connection = ByHand()
        connection.send(b"POST / HTTP/1.1\r\nHost: tideq\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        call = await connection.desk.call()
        assert (await call.receive())["body"] == b"a"

        connection.send(b"nonsense\r\n")

        assert (await call.receive())["type"] == "http.disconnect"
        await call.answer(b"an answer to what was half asked")
        assert connection.line.said.startswith(b"HTTP/1.1 400 ")
        assert b"half asked" not in connection.line.said
        await connection.close()

    async def test_nonsense_inside_a_body_whose_answer_has_begun_breaks_it_off(self) -> None:
        connection = ByHand()
        connection.send(b"POST / HTTP/1.1\r\nHost: tideq\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        call = await connection.desk.call()
        await call.begin()
        await call.go_on(b"half")
        said = connection.line.said

        connection.send(b"nonsense\r\n")

        assert (connection.line.said, connection.line.is_closed) == (said, True)
        await connection.close()
