"""When kept connections are used again, which callers may share them, and how a proxy is used."""

import asyncio
import concurrent.futures
import contextlib
import gzip
import os
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from tests.client.ways import PLAIN, WAYS, Way, answering, blocking, post, request_of, sender, server
from tests.stores import free_port
from tideq.client import AsyncClient, Client
from tideq.client.http import exchange
from tideq.client.http.endpoint import endpoint_of, proxy_for
from tideq.client.http.exchange import Lost, Misunderstood, Stale, Unsent

STATS = b'{"queue": {}}'


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


class TestAskingAgain:
    @pytest.mark.parametrize("is_repeatable", [True, False])
    async def test_a_kept_connection_that_ends_upon_a_request_is_replaced_and_nothing_unrepeatable_risked(
        self, way: Way, is_repeatable: bool
    ) -> None:
        seen = list[int]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """The second request on any connection is taken and not answered."""
            seen.append(0)
            here = len(seen) - 1
            await request_of(reader)
            seen[here] += 1
            writer.write(PLAIN)
            await request_of(reader)
            seen[here] += 1

        async with server(serve) as place, sender(way, f"http://{place}") as http:
            await http.send(post())
            if is_repeatable:
                with pytest.raises(Stale):  # told, and asked again by those who know what that may mean
                    await http.send(post())
            assert (await http.send(post(is_repeatable=is_repeatable))).body == b"ok"

        assert seen == ([2, 1] if is_repeatable else [1, 1])

    @pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200"], ids=["nothing", "a part"])
    async def test_a_new_connection_that_ends_is_told_and_so_is_a_part_of_an_answer(
        self, way: Way, answer: bytes
    ) -> None:
        requests = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            if answer:
                await answering(PLAIN, closes=True)(reader, writer)
            await request_of(reader)
            requests += 1
            writer.write(answer)

        async with server(serve) as place, sender(way, f"http://{place}") as http:
            if answer:
                await http.send(post())
            with pytest.raises(Lost):
                await http.send(post())

        assert requests == 1

    async def test_what_comes_unasked_is_not_taken_for_an_answer(self, way: Way) -> None:
        """Neither a second answer in one piece with the first, nor one that comes later."""
        number = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal number
            while await request_of(reader):
                number += 1
                writer.write(PLAIN.replace(b"ok", b"%02d" % number) + PLAIN.replace(b"ok", b"no"))

        async with server(serve) as place, sender(way, f"http://{place}") as http:
            told = [(await http.send(post())).body for _ in range(3)]

        assert told == [b"01", b"02", b"03"]

    async def test_a_connection_with_half_a_request_on_it_is_not_used_again(self) -> None:
        connections = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            if connections > 1:
                await answering(PLAIN)(reader, writer)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
            while await reader.read(1_000_000):
                pass

        async with server(serve) as place, sender("async", f"http://{place}", connections=1) as http:
            assert (await http.send(post(b"x" * 50_000_000))).status == 413
            assert (await http.send(post())).body == b"ok"


class TestSharing:
    async def test_a_call_that_is_broken_off_takes_its_connection_with_it_and_leaves_room(self) -> None:
        """Else its answer would be taken for the next one's, or nobody could ask any more."""
        asked, ended = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_of(reader)
            if asked.is_set():
                writer.write(PLAIN)
                return
            asked.set()
            assert await reader.read() == b""
            ended.set()

        async with server(serve) as place, sender("async", f"http://{place}", connections=1) as http:
            call = asyncio.create_task(http.send(post()))
            await asked.wait()
            waiting = [asyncio.create_task(http.send(post())) for _ in range(2)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            call.cancel()
            await asyncio.wait([call, waiting[0]])

            assert (await waiting[1]).body == b"ok"
            await ended.wait()
            assert (await http.send(post())).body == b"ok"

    async def test_threads_share_a_client(self) -> None:
        connections = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            while True:
                body = (await request_of(reader)).partition(b"\r\n\r\n")[2]
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))

        async with server(serve) as place:
            http = blocking(f"http://{place}", connections=4)

            def some(thread: int) -> Iterator[bool]:
                for number in range(50):
                    text = b"%d.%d" % (thread, number)
                    yield http.request(post(text)).body == text

            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                loop = asyncio.get_running_loop()
                told = await asyncio.gather(
                    *(loop.run_in_executor(threads, lambda n=n: all(some(n))) for n in range(8))
                )
            http.close()

        assert told == [True] * 8
        assert connections <= 4

    def test_a_client_serves_one_loop_after_another(self) -> None:
        async def ask(client: AsyncClient) -> float:
            answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(STATS), STATS)
            async with server(answering(answer), port=port):
                return (await client.queue.stats()).queue.total_depth

        port = free_port()
        client = AsyncClient(f"http://127.0.0.1:{port}")
        assert [asyncio.run(ask(client)) for _ in range(2)] == [0, 0]
        asyncio.run(client.aclose())

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    async def test_a_fork_leaves_the_parents_connections_alone(self) -> None:
        connections = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await answering(PLAIN)(reader, writer)

        async with server(serve) as place:
            http = blocking(f"http://{place}", connections=4)
            await asyncio.to_thread(http.request, post())
            if (child := os.fork()) == 0:
                is_right = False
                try:
                    is_right = http.request(post()).body == b"ok"
                finally:
                    os._exit(0 if is_right else 1)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert (await asyncio.to_thread(http.request, post())).body == b"ok"
            http.close()

        assert (os.waitstatus_to_exitcode(status), connections) == (0, 2)


class TestBounds:
    @pytest.mark.parametrize("length", [b"", b"content-length: 3000\r\n"], ids=["until its end", "by its length"])
    async def test_a_body_is_bounded(self, way: Way, length: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exchange, "MAX_BODY_BYTES", 1_000)
        large = b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (length, b"x" * 3_000)

        async with server(answering(large, closes=True)) as place, sender(way, f"http://{place}") as http:
            with pytest.raises(Misunderstood):
                await http.send(post())

    async def test_a_packed_body_is_bounded_as_it_is_unpacked(self, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exchange, "MAX_BODY_BYTES", 100_000)
        packed = gzip.compress(b"x" * 10_000_000)
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)

        async with server(answering(head + packed)) as place, sender(way, f"http://{place}") as http:
            with pytest.raises(Misunderstood):
                await http.send(post())


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return monkeypatch


class TestProxies:
    @pytest.mark.parametrize(
        ("url", "environ", "expected"),
        [
            ("http://a.example.org", {}, None),
            ("http://a.example.org", {"http_proxy": "http://p:1"}, "http://p:1"),
            ("http://a.example.org", {"http_proxy": "p:1"}, "http://p:1"),
            ("https://a.example.org", {"http_proxy": "http://p:1"}, None),
            ("https://a.example.org", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
            ("http://a.example.org", {"http_proxy": "http://p:1", "no_proxy": "example.org"}, None),
            ("http://a.example.org", {"http_proxy": "http://p:1", "no_proxy": "x, .example.org"}, None),
            ("http://aexample.org", {"http_proxy": "http://p:1", "no_proxy": "example.org"}, "http://p:1"),
            ("http://127.0.0.1:8080", {"http_proxy": "http://p:1", "no_proxy": "localhost,127.0.0.1"}, None),
            ("http://127.0.0.1:8080", {"http_proxy": "http://p:1", "no_proxy": "*"}, None),
            ("http://a.example.org", {"HTTP_PROXY": "http://p:1", "http_proxy": ""}, None),
            ("http://a.example.org", {"http_proxy": "http://p:1", "NO_PROXY": "*", "no_proxy": "b"}, "http://p:1"),
            ("http://a.example.org", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None),
        ],
    )
    def test_one_is_used_where_the_environment_says_so(
        self, url: str, environ: dict[str, str], expected: str | None, no_proxies: pytest.MonkeyPatch
    ) -> None:
        for name, value in environ.items():
            no_proxies.setenv(name, value)

        assert proxy_for(endpoint_of(url, {})) == expected

    async def test_calls_go_through_it_with_its_password(self, no_proxies: pytest.MonkeyPatch) -> None:
        heard: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await request_of(reader))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(STATS), STATS))

        async with server(serve) as place:
            no_proxies.setenv("http_proxy", f"http://ann:p%40ss@{place}")
            async with AsyncClient("http://tideq.example.org", "tq_k") as client:
                await client.queue.stats()
            with Client("http://tideq.example.org", "tq_k") as blocking_client:
                await asyncio.to_thread(blocking_client.queue.stats)

        assert [each.split(b" ")[1].partition(b"/api")[0] for each in heard] == [b"http://tideq.example.org"] * 2
        assert all(b"proxy-authorization: basic yw5uonbac3m=" in each.lower() for each in heard)
        assert all(b"host: tideq.example.org\r\n" in each.lower() for each in heard)

    async def test_a_secure_service_is_reached_through_a_tunnel(self, way: Way, no_proxies: pytest.MonkeyPatch) -> None:
        """The proxy sees where to, and its own password, and nothing of the request."""
        authority: Any = trustme.CA()
        theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
        authority.issue_cert("tideq.example.org").configure_cert(theirs)
        authority.configure_trust(ours)
        heard: list[bytes] = []

        async with server(answering(PLAIN), tls=theirs) as place:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                heard.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                host, port = place.split(":")
                further, back = await asyncio.open_connection(host, int(port))
                with contextlib.closing(back):
                    await asyncio.gather(_pump(reader, back), _pump(further, writer))

            async with server(serve) as proxy:
                no_proxies.setenv("https_proxy", f"http://ann:p%40ss@{proxy}")
                async with sender(way, "https://tideq.example.org", key="tq_k", verify=ours) as http:
                    assert (await http.send(post())).body == b"ok"

        assert heard[0].startswith(b"CONNECT tideq.example.org:443 ")
        assert b"proxy-authorization: basic yw5uonbac3m=" in heard[0].lower()
        assert b"tq_k" not in heard[0]

    async def test_a_proxy_that_refuses_means_nothing_was_sent(self, way: Way, no_proxies: pytest.MonkeyPatch) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n")

        async with server(serve) as proxy:
            no_proxies.setenv("https_proxy", f"http://{proxy}")
            async with sender(way, "https://tideq.example.org") as http:
                with pytest.raises(Unsent):
                    await http.send(post())


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
        writer.close()
