"""A client that is closed sends nothing more, and what it breaks off is not taken for an answer."""

import asyncio
import contextlib
import gc
import select
import socket
import ssl
from typing import Any

import pytest
import trustme

from tests.client.ways import PLAIN, WAYS, Way, post, request_of, sender, server
from tideq.client.http.exchange import ExchangeFailed


@pytest.fixture(params=WAYS)
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
                while not select.select([listening], [], [], 0)[0]:
                    await asyncio.sleep(0.001)
                await http.aclose()
                async with await asyncio.start_server(serve, sock=listening, ssl=tls):
                    with pytest.raises((RuntimeError, ExchangeFailed), match="closed"):
                        await call

        assert requests == 0


async def test_a_server_that_takes_no_more_of_a_request_does_not_delay_the_end() -> None:
    connected, done = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await done.wait()

    async with server(serve) as place, sender("async", f"http://{place}") as http, asyncio.timeout(20):
        call = asyncio.create_task(http.send(post(b"x" * 50_000_000)))
        await connected.wait()
        await http.aclose()
        with pytest.raises(ExchangeFailed):
            await call
        done.set()


async def test_a_client_that_is_dropped_without_closing_ends_without_a_word(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    async def send(place: str) -> None:
        async with contextlib.AsyncExitStack() as never_closed:
            http = await never_closed.enter_async_context(sender(way, f"http://{place}"))
            await http.send(post())
            never_closed.pop_all()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await request_of(reader):
            writer.write(PLAIN)

    async with server(serve) as place:
        await asyncio.to_thread(asyncio.run, send(place))
        gc.collect()
        logged = list(caplog.records)

    assert not logged
