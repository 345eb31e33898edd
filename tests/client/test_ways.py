"""Both HTTP clients do the same: whatever a server does, a caller is told alike, by either."""

import asyncio
import contextlib
import gzip
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.client.ways import PLAIN, WAYS, Way, answering, post, request_of, sender, server
from tests.stores import free_port
from tideq.client.calls.base import Call, get
from tideq.client.config import client_config
from tideq.client.errors import CannotConnect, UntrustedServer
from tideq.client.http.exchange import ExchangeFailed, Lost, Misunderstood, Stale, Timeouts, Unsent

WHOLE = (PLAIN,)
BYTE_BY_BYTE = tuple(PLAIN[at : at + 1] for at in range(len(PLAIN)))
PACKED = gzip.compress(b"ok")
EMPTY_PACKED = b"HTTP/1.1 200 OK\r\nretry-after: 7\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


class TestRequests:
    async def test_a_request_says_method_path_query_headers_and_body(self, way: Way) -> None:
        heard: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                heard.append(await request_of(reader))
                writer.write(PLAIN)

        query = Call(method="GET", path="/a%20b", read=bytes, params=(("x", "1 & ü"), ("x", "2")))
        async with server(serve) as place, sender(way, f"http://{place}/bäse/", key="tq_k") as http:
            for call in (query, post(b'{"a":1}', traceparent="00-1"), Call(method="POST", path="/e", read=bytes)):
                await http.send(call)

        heads = [each.decode().partition("\r\n\r\n")[0].split("\r\n") for each in heard]
        assert heads[0][0] == "GET /b%C3%A4se/a%20b?x=1+%26+%C3%BC&x=2 HTTP/1.1"
        assert heads[1][0] == "POST /b%C3%A4se/x HTTP/1.1"
        assert heard[1].endswith(b'\r\n\r\n{"a":1}')
        told = [{line.partition(": ")[0].lower(): line.partition(": ")[2] for line in head[1:]} for head in heads]
        assert all(each["host"] == place and each["authorization"] == "Bearer tq_k" for each in told)
        assert all(each["user-agent"].startswith("tideq-python/") for each in told)
        assert [each.get("content-length") for each in told] == [None, "7", "0"]
        assert told[1]["traceparent"] == "00-1"

    @pytest.mark.parametrize(("url", "host"), [("http://ann:p%40ss@{}", "127.0.0.1"), ("http://{}", "::1")])
    async def test_a_name_in_the_address_and_a_longer_kind_of_address_are_understood(
        self, way: Way, url: str, host: str
    ) -> None:
        heard: list[str] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append((await request_of(reader)).decode().lower())
            writer.write(PLAIN)

        async with server(serve, host) as place, sender(way, url.format(place), key="tq_k") as http:
            assert (await http.send(get("/x", bytes))).body == b"ok"

        assert f"host: {place}\r\n" in heard[0]
        assert ("authorization: basic yw5uonbac3m=" in heard[0]) is ("@" in url)
        assert ("bearer" in heard[0]) is ("@" not in url)


class TestAnswers:
    @pytest.mark.parametrize(
        "pieces",
        [
            WHOLE,
            BYTE_BY_BYTE,
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n", b"1\r\nk\r\n0\r\n\r\n"),
            (b"HTTP/1.1 100 Continue\r\n\r\n", PLAIN),
            (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(PACKED) + PACKED,),
        ],
        ids=["whole", "byte by byte", "in chunks", "after a go-on", "packed"],
    )
    async def test_an_answer_is_read_however_it_comes_and_the_connection_is_used_again(
        self, way: Way, pieces: tuple[bytes, ...]
    ) -> None:
        connections = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await answering(*pieces)(reader, writer)

        async with server(serve) as place, sender(way, f"http://{place}") as http:
            answers = [await http.send(post()) for _ in range(3)]

        assert [(each.status, each.body, each.is_success) for each in answers] == [(200, b"ok", True)] * 3
        assert connections == 1

    @pytest.mark.parametrize(
        ("answer", "status", "body"),
        [
            (b"HTTP/1.0 503 Busy\r\nRetry-After: 7\r\n\r\nlater", 503, b"later"),
            (b"HTTP/1.1 302 Found\r\nRetry-After: 7\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n", 302, b""),
            (b"HTTP/1.1 204 No Content\r\nretry-after: 7\r\n\r\n", 204, b""),
            (b"HTTP/1.1 204 No Content\r\nretry-after: 7\r\ncontent-encoding: gzip\r\n\r\n", 204, b""),
            (EMPTY_PACKED, 200, b""),
        ],
        ids=["ends with its connection", "is not followed", "has no body", "packs no body", "packs nothing"],
    )
    async def test_any_answer_is_told_as_it_is(self, way: Way, answer: bytes, status: int, body: bytes) -> None:
        async with server(answering(answer, closes=True)) as place, sender(way, f"http://{place}") as http:
            told = await http.send(post())

        assert (told.status, told.body, told.headers.get("retry-after")) == (status, body, "7")

    @pytest.mark.parametrize(
        ("answer", "kind"),
        [
            (b"", Lost),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nonly", Lost),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", Lost),
            (b"220 mail.example.org ESMTP\r\n\r\n", Lost),
            (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok", Misunderstood),
        ],
        ids=["nothing", "too little", "no end", "no HTTP", "not packed"],
    )
    async def test_what_is_no_answer_is_told_and_the_next_call_goes_well(
        self, way: Way, answer: bytes, kind: type[ExchangeFailed]
    ) -> None:
        given = iter([answer])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answering(next(given, PLAIN), closes=True)(reader, writer)

        async with server(serve) as place, sender(way, f"http://{place}") as http:
            with pytest.raises(kind):
                await http.send(post())
            with contextlib.suppress(Stale):  # of a connection that the server is about to close
                assert (await http.send(post())).body == b"ok"

    async def test_headers_without_end_are_not_read_without_end(self, way: Way) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_of(reader)
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"x: " + b"y" * 10_000 + b"\r\n")
                await writer.drain()

        async with server(serve) as place, sender(way, f"http://{place}") as http:
            with pytest.raises(ExchangeFailed):
                await http.send(post())


class TestConnections:
    async def test_one_that_the_server_closes_between_requests_is_replaced(self, way: Way) -> None:
        closed = asyncio.Queue[None]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answering(PLAIN, closes=True)(reader, writer)
            writer.close()
            await writer.wait_closed()
            closed.put_nowait(None)

        async with server(serve) as place, sender(way, f"http://{place}") as http:
            for number in range(4):
                assert (await http.send(post(is_repeatable=number % 2 == 0))).body == b"ok"
                await closed.get()

    async def test_requests_at_a_time_are_as_many_as_allowed_and_the_rest_wait(self, way: Way) -> None:
        most = now = 0
        two = asyncio.Barrier(2)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal most, now
            while await request_of(reader):
                now += 1
                most = max(most, now)
                await two.wait()
                now -= 1
                writer.write(PLAIN)

        async with server(serve) as place, sender(way, f"http://{place}", connections=2) as http:
            answers = await asyncio.gather(*(http.send(post()) for _ in range(8)))

        assert ([each.body for each in answers], most) == ([b"ok"] * 8, 2)

    async def test_when_none_comes_free_in_time_nothing_was_sent(self, way: Way) -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request_of(reader)
            asked.set()
            await go.wait()
            writer.write(PLAIN)

        impatient = Timeouts(read=30, pool=0.01)
        async with server(serve) as place, sender(way, f"http://{place}", connections=1, timeouts=impatient) as http:
            first = asyncio.create_task(http.send(post()))
            await asked.wait()
            with pytest.raises(Unsent):
                await http.send(post())
            go.set()
            assert (await first).body == b"ok"

    async def test_a_silence_is_told_and_is_not_the_next_ones(self, way: Way) -> None:
        given = iter([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no"])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answering(next(given, PLAIN))(reader, writer)

        short = Timeouts(read=0.05)
        async with server(serve) as place, sender(way, f"http://{place}", connections=1, timeouts=short) as http:
            with pytest.raises(Lost):
                await http.send(post())
            assert (await http.send(post())).body == b"ok"

    async def test_a_request_nobody_takes_is_told(self, way: Way) -> None:
        done = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await done.wait()

        short = Timeouts(read=30, write=0.2)
        async with server(serve) as place, sender(way, f"http://{place}", timeouts=short) as http:
            with pytest.raises(Lost):
                await http.send(post(b"x" * 50_000_000))
            done.set()

    async def test_an_answer_to_half_a_request_is_taken(self, way: Way) -> None:
        """A service that refuses a body by its length does not read it."""
        given = iter([b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno"])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if answer := next(given, b""):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                await writer.drain()
                while await reader.read(65_536):
                    pass
            await answering(PLAIN)(reader, writer)

        async with server(serve) as place, sender(way, f"http://{place}", connections=1) as http:
            assert (await http.send(post(b"x" * 3_000_000))).status == 413
            assert (await http.send(post())).body == b"ok"

    async def test_nobody_there_means_nothing_was_sent(self, way: Way) -> None:
        async with sender(way, f"http://127.0.0.1:{free_port()}") as http:
            with pytest.raises(Unsent):
                await http.send(post())

    async def test_a_closed_one_asks_nobody(self, way: Way) -> None:
        async with server(answering(PLAIN)) as place, sender(way, f"http://{place}") as http:
            await http.send(post())
            await http.aclose()
            with pytest.raises(RuntimeError, match="closed"):
                await http.send(post())

    @pytest.mark.parametrize("value", ["a\r\nx-other: 1", "a\nb"], ids=["two lines", "a line's end"])
    async def test_a_header_cannot_become_two(self, way: Way, value: str) -> None:
        async with server(answering(PLAIN)) as place, sender(way, f"http://{place}") as http:
            with pytest.raises(Misunderstood):
                await http.send(post(traceparent=value))


class TestTrust:
    async def test_a_known_authority_is_trusted_an_unknown_one_and_another_name_are_not(self, way: Way) -> None:
        authority: Any = trustme.CA()
        right, wrong = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
        authority.issue_cert("127.0.0.1").configure_cert(right)
        authority.issue_cert("elsewhere.example.org").configure_cert(wrong)
        ours = ssl.create_default_context()
        authority.configure_trust(ours)

        async def told(tls: ssl.SSLContext, verify: ssl.SSLContext | bool) -> type[Exception] | int:
            async with (
                server(answering(PLAIN), tls=tls) as place,
                sender(way, f"https://{place}", verify=verify) as http,
            ):
                try:
                    return (await http.send(post())).status
                except ExchangeFailed as failure:
                    return type(client_config(f"https://{place}", "", None, 1, True, {}).unreachable(failure))

        assert await told(right, ours) == 200
        assert await told(right, True) is UntrustedServer
        assert await told(wrong, ours) is UntrustedServer
        assert await told(wrong, False) == 200

    async def test_the_environment_names_an_authority(
        self, way: Way, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        authority: Any = trustme.CA()
        server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(server_side)
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

        async with server(answering(PLAIN), tls=server_side) as place, sender(way, f"https://{place}") as http:
            assert (await http.send(post())).status == 200

    async def test_a_server_that_wants_a_certificate_gets_the_callers(self, way: Way) -> None:
        authority: Any = trustme.CA()
        server_side, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
        authority.issue_cert("127.0.0.1").configure_cert(server_side)
        server_side.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(server_side)
        authority.configure_trust(ours)
        authority.issue_cert("worker.example.org").configure_cert(ours)

        async with (
            server(answering(PLAIN), tls=server_side) as place,
            sender(way, f"https://{place}", verify=ours) as http,
        ):
            assert (await http.send(post())).status == 200

    async def test_what_speaks_no_tls_cannot_be_connected_to(self, way: Way) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"hello, who is there?\r\n")

        async with server(serve) as place, sender(way, f"https://{place}", verify=False) as http:
            with pytest.raises(Unsent) as failed:
                await http.send(post())

        assert type(client_config(None, "", None, 1, True, {}).unreachable(failed.value)) is CannotConnect
