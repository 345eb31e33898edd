"""What our own connections do beyond what httpx does too: when they ask again, and who may share them."""

import asyncio
import concurrent.futures
import os
import urllib.request
from collections.abc import Iterator

import pytest

from tests.client.ways import PATIENT, PLAIN, Way, answering, post, request_of, sender, server
from tests.stores import free_port
from tideq.client import AsyncClient, Client
from tideq.client._sync.lean import Lean
from tideq.client.config import client_config
from tideq.client.http import answers
from tideq.client.http.answers import ResponseParser
from tideq.client.http.exchange_failures import ExchangeFailed, Lost, Misunderstood, Stale
from tideq.client.http.proxies import has_proxy, proxies_in

STATS = b'{"queue": {}}'
LEAN: tuple[Way, ...] = ("lean async", "lean sync")


@pytest.fixture(params=LEAN)
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

        async with server(serve) as place, sender("lean async", f"http://{place}", connections=1) as http:
            assert (await http.send(post(b"x" * 50_000_000))).status == 413
            assert (await http.send(post())).body == b"ok"

    def test_after_two_answers_to_one_request_nothing_more_is_asked(self) -> None:
        parser = ResponseParser()

        assert parser.feed(PLAIN + PLAIN.replace(b"ok", b"no"))
        assert parser.answer is not None
        assert (parser.answer.body, parser.is_last) == (b"ok", True)


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

        async with server(serve) as place, sender("lean async", f"http://{place}", connections=1) as http:
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
            way = Lean(client_config(f"http://{place}", "", None, 4, True, {}))

            def some(thread: int) -> Iterator[bool]:
                for number in range(50):
                    text = b"%d.%d" % (thread, number)
                    yield way.send(post(text), PATIENT).body == text

            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                loop = asyncio.get_running_loop()
                told = await asyncio.gather(
                    *(loop.run_in_executor(threads, lambda n=n: all(some(n))) for n in range(8))
                )
            way.close()

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
            way = Lean(client_config(f"http://{place}", "", None, 4, True, {}))
            await asyncio.to_thread(way.send, post(), PATIENT)
            if (child := os.fork()) == 0:
                is_right = False
                try:
                    is_right = way.send(post(), PATIENT).body == b"ok"
                finally:
                    os._exit(0 if is_right else 1)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert (await asyncio.to_thread(way.send, post(), PATIENT)).body == b"ok"
            way.close()

        assert (os.waitstatus_to_exitcode(status), connections) == (0, 2)


class TestBounds:
    def test_a_body_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(answers, "MAX_BODY_BYTES", 1_000)
        parser = ResponseParser()
        parser.feed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        parser.feed(b"200\r\n%b\r\n" % (b"x" * 0x200))

        with pytest.raises(Misunderstood):
            parser.feed(b"200\r\n%b\r\n" % (b"x" * 0x200))

    def test_headers_are_bounded(self) -> None:
        parser, line = ResponseParser(), b"x: " + b"y" * 10_000 + b"\r\n"
        parser.feed(b"HTTP/1.1 200 OK\r\n")
        for _ in range(6):
            parser.feed(line)

        with pytest.raises(ExchangeFailed):
            parser.feed(line)


class TestProxies:
    @pytest.mark.parametrize(
        ("url", "environ", "expected"),
        [
            ("http://a.example.org", {}, False),
            ("http://a.example.org", {"http_proxy": "http://p:1"}, True),
            ("https://a.example.org", {"http_proxy": "http://p:1"}, False),
            ("https://a.example.org", {"ALL_PROXY": "http://p:1"}, True),
            ("http://a.example.org", {"http_proxy": "http://p:1", "no_proxy": "example.org"}, False),
            ("http://a.example.org", {"http_proxy": "http://p:1", "no_proxy": "x, .example.org"}, False),
            ("http://aexample.org", {"http_proxy": "http://p:1", "no_proxy": "example.org"}, True),
            ("http://127.0.0.1:8080", {"http_proxy": "http://p:1", "no_proxy": "localhost,127.0.0.1"}, False),
            ("http://127.0.0.1:8080", {"http_proxy": "http://p:1", "no_proxy": "*"}, False),
            ("http://a.example.org", {"HTTP_PROXY": "http://p:1", "http_proxy": ""}, False),
            ("http://a.example.org", {"http_proxy": "http://p:1", "NO_PROXY": "*", "no_proxy": "b"}, True),
            ("http://a.example.org", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, False),
            ("http://a.example.org", {"http_proxy": "http://p:1", "REQUEST_METHOD": "GET"}, True),
        ],
    )
    def test_one_is_used_where_the_given_environment_says_so_which_is_read_as_python_does(
        self, url: str, environ: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        with monkeypatch.context() as real:
            for name, value in environ.items():
                real.setenv(name, value)
            as_python_does = urllib.request.getproxies_environment()
        monkeypatch.setenv("no_proxy" if expected else "all_proxy", "*")

        assert has_proxy(url, environ) is expected
        assert proxies_in(environ) == as_python_does

    async def test_calls_go_through_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        heard: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await request_of(reader))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(STATS), STATS))

        async with server(serve) as place:
            for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
                monkeypatch.delenv(name)
            monkeypatch.setenv("http_proxy", f"http://{place}")
            async with AsyncClient("http://tideq.example.org") as client:
                await client.queue.stats()
            with Client("http://tideq.example.org") as blocking:
                await asyncio.to_thread(blocking.queue.stats)

        assert [each.split(b" ")[1].partition(b"/api")[0] for each in heard] == [b"http://tideq.example.org"] * 2
