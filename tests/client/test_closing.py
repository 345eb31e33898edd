"""A client that is closed sends nothing more, and what it breaks off is not taken for an answer."""

import asyncio
import contextlib
import socket
import ssl
from typing import Any

import pytest
import trustme

from tests.client.ways import PLAIN, Way, post, request_of, sender, server
from tideq.client.http.async_connection import AsyncConnection
from tideq.client.http.exchange_failures import Lost, Stale
from tideq.client.http.readable import is_readable
from tideq.client.http.timeouts import Timeouts

LEAN: tuple[Way, ...] = ("lean async", "lean sync")


@pytest.fixture(params=LEAN)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


class TestPools:
    async def test_who_waits_for_a_connection_is_told_and_sends_nothing(self, way: Way) -> None:
        requests = 0
        asked, go = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            while await request_of(reader):
                requests += 1
                asked.set()
                await go.wait()
                writer.write(PLAIN)

        async with server(serve) as place, sender(way, f"http://{place}", connections=1) as http:
            calls = [asyncio.create_task(http.send(post())) for _ in range(3)]
            await asked.wait()
            await http.aclose()
            go.set()
            told = await asyncio.gather(*calls, return_exceptions=True)

        assert [str(each) for each in told].count("the client is closed") == 2
        assert requests == 1

    async def test_who_is_about_to_be_connected_is_told_and_sends_nothing(self, way: Way) -> None:
        requests = 0
        authority: Any = trustme.CA()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(tls)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            with contextlib.closing(writer), contextlib.suppress(OSError):
                requests += bool(await reader.read(1))

        with socket.create_server(("127.0.0.1", 0)) as listening:
            place = f"https://127.0.0.1:{listening.getsockname()[1]}"
            async with sender(way, place, verify=False) as http:
                call = asyncio.create_task(http.send(post()))
                while not is_readable(listening.fileno()):
                    await asyncio.sleep(0.001)
                await http.aclose()
                async with await asyncio.start_server(serve, sock=listening, ssl=tls):
                    with pytest.raises(RuntimeError, match="the client is closed"):
                        await call

        assert requests == 0


class _Watched(AsyncConnection):
    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.received, self.ended = asyncio.Event(), asyncio.Event()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.received.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.set()


async def connected(place: str) -> _Watched:
    host, _, port = place.rpartition(":")
    return (await asyncio.get_running_loop().create_connection(_Watched, host, int(port)))[1]


class TestConnections:
    async def test_an_answer_that_would_end_with_its_connection_is_not_whole_when_this_side_ends_it(self) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_of(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhalf")
            await reader.read()

        async with server(serve) as place:
            connection = await connected(place)
            answer = connection.ask(b"GET / HTTP/1.1\r\n\r\n", Timeouts())
            await connection.received.wait()
            connection.abort()
            with pytest.raises(Lost):
                await answer
            await connection.ended.wait()

    async def test_a_new_one_that_is_gone_before_its_request_is_not_taken_for_a_kept_one(self) -> None:
        """Those are replaced at once: a server that ends each connection would be asked without end."""

        async def serve(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            pass

        async with server(serve) as place:
            connection = await connected(place)
            await connection.ended.wait()
            with pytest.raises(Lost) as told:
                await connection.ask(b"GET / HTTP/1.1\r\n\r\n", Timeouts())

        assert not isinstance(told.value, Stale)
