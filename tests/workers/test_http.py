"""The lean client says what it was asked to and understands whatever an HTTP server may answer."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from tests.client.ways import PLAIN, Serve, answering, request_of, server
from tideq.client.http.answers import Response
from tideq.workers.runtime.http import Http


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[Http]:
    """A server that does with each connection what the test says, and a client for it."""
    async with server(serve) as place:
        http = Http(f"http://{place}/base/", {"x-key": "secret"})
        try:
            yield http
        finally:
            await http.aclose()


async def ask(http: Http, seconds: float = 10) -> Response:
    return await http.request("POST", "/x", b"{}", seconds)


async def test_a_request_says_method_path_headers_and_body() -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await request_of(reader))
        writer.write(PLAIN)

    async with serving(serve) as http:
        assert (await http.request("DELETE", "/w1", b"", 10)).body == b"ok"

    lines = heard[0].split(b"\r\n")
    assert lines[0] == b"DELETE /base/w1 HTTP/1.1"
    assert {b"x-key: secret", b"content-length: 0"} <= set(lines)
    assert sum(line.startswith(b"host: 127.0.0.1:") for line in lines) == 1


@pytest.mark.parametrize(
    "pieces",
    [
        (PLAIN,),
        tuple(PLAIN[at : at + 1] for at in range(len(PLAIN))),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n", b"1\r\nk\r\n0\r\n\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", PLAIN),
    ],
    ids=["whole", "byte by byte", "in chunks", "after a go-on"],
)
async def test_an_answer_is_read_however_it_comes_and_the_connection_is_used_again(pieces: tuple[bytes, ...]) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(*pieces)(reader, writer)

    async with serving(serve) as http:
        answers = [await ask(http) for _ in range(3)]

    assert [(each.status, each.body) for each in answers] == [(200, b"ok")] * 3
    assert connections == 1


async def test_an_answer_may_end_with_its_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.0 503 Busy\r\nRetry-After: 7\r\n\r\nlater")

    async with serving(serve) as http:
        answer = await ask(http)

    assert (answer.status, answer.header("retry-after"), answer.body) == (503, "7", b"later")


async def test_a_kept_connection_that_died_meanwhile_is_replaced() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(PLAIN)

    async with serving(serve) as http:
        for _ in range(5):
            assert (await ask(http)).status == 200


async def test_a_server_that_says_it_closes_is_not_asked_on_that_connection_again() -> None:
    closing = PLAIN.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")

    async with serving(answering(closing)) as http:
        assert [(await ask(http)).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nonly",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
    ids=["nothing", "too little", "no end"],
)
async def test_half_an_answer_is_none(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(answer)

    async with serving(serve) as http:
        with pytest.raises(OSError, match="ended before the answer"):
            await ask(http)


async def test_what_is_no_http_is_refused() -> None:
    async with serving(answering(b"220 mail.example.org ESMTP\r\n\r\n")) as http:
        with pytest.raises(OSError, match="no HTTP"):
            await ask(http)


async def test_a_request_broken_off_takes_its_connection_with_it() -> None:
    """Else its answer would be taken for the next one's."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        assert await reader.read() == b""
        ended.set()

    async with serving(serve) as http:
        with pytest.raises(OSError, match="did not answer within"):
            await ask(http, seconds=0.05)
        async with asyncio.timeout(60):
            await ended.wait()


async def test_requests_at_a_time_have_a_connection_each() -> None:
    all_here = asyncio.Barrier(5)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        await all_here.wait()
        writer.write(PLAIN)

    async with serving(serve) as http, asyncio.timeout(60):
        answers = await asyncio.gather(*(ask(http) for _ in range(5)))

    assert [each.body for each in answers] == [b"ok"] * 5


@pytest.mark.parametrize("url", ["ftp://host", "host:80", "http://"])
def test_an_address_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not an http"):
        Http(url, {})
