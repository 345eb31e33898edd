"""Requests whose head never ends, and bytes that are no request: refused with a problem document, at no cost."""

import json
import socket
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.api.running import Running, environ, serving
from tests.stores import StoreUnderTest
from tideq.api.http11.limits import MAX_HEAD_BYTES

GET = b"GET /livez HTTP/1.1\r\nHost: tideq\r\n"
CHUNKED = b"POST /api/v1/tasks HTTP/1.1\r\nHost: tideq\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "headers": (GET, b"X-Filling: " + b"v" * 100 + b"\r\n"),
    "a header's value": (GET + b"X-Filling: ", b"v" * 100),
    "a header's name": (GET, b"X" * 100),
    "a path": (b"GET /", b"v" * 100),
    "a query": (b"GET /livez?a=", b"v" * 100),
    "trailers": (CHUNKED + b"0\r\n", b"X-Filling: " + b"v" * 100 + b"\r\n"),
    "a trailer": (CHUNKED + b"0\r\nX-Filling: ", b"v" * 100),
    "a chunk's extension": (CHUNKED + b"1;", b"x" * 100),
}
NONSENSE = (b"garbage\r\n\r\n", b"GET /livez SMTP/9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01")
FLOOD_BYTES = 64 * 2**20
MAX_GROWTH_KIB = 8 * 1024


@pytest.fixture(scope="module")
def server(
    running_stores: Callable[[str], StoreUnderTest], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """One for all: what is refused here leaves nothing behind."""
    settings = environ(running_stores("valkey").url, uuid.uuid4().hex[:12])
    with serving(settings, tmp_path_factory.mktemp("heads")) as running:
        yield running


def answer_to(port: int, request: bytes) -> tuple[int, dict[str, object]]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        head, _, body = b"".join(iter(lambda: connection.recv(65_536), b"")).partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)


def sent_before_the_end(port: int, begin: bytes, piece: bytes) -> int:
    block = piece * (65_536 // len(piece))
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(begin)
        try:
            while sent < FLOOD_BYTES:
                connection.sendall(block)
                sent += len(block)
        except ConnectionError:
            pass
    return sent


def test_a_head_that_is_too_large_is_refused_with_a_problem(server: Running) -> None:
    """Sent until just past the limit: bytes that nobody reads any more would break the connection before the answer."""
    for begin, piece in map(ENDLESS.__getitem__, ("headers", "a path", "a query", "trailers")):
        counted = len(piece) - len(b": \r\n") if piece.endswith(b"\r\n") else len(piece)

        status, document = answer_to(server.port, begin + piece * (MAX_HEAD_BYTES // counted + 2))

        assert (status, document["status"]) == (431, 431)
        assert str(document["type"]).endswith("/head-too-large")


def test_a_head_without_end_is_cut_off_and_costs_no_memory(server: Running) -> None:
    sent_before_the_end(server.port, *ENDLESS["headers"])
    before = server.peak_kib()

    sent = {name: sent_before_the_end(server.port, *flood) for name, flood in ENDLESS.items()}

    assert max(sent.values()) < FLOOD_BYTES, sent
    assert server.peak_kib() - before < MAX_GROWTH_KIB


def test_a_large_head_within_the_limit_is_served(server: Running) -> None:
    request = GET + b"X-Filling: " + b"v" * (MAX_HEAD_BYTES - 1_000) + b"\r\nConnection: close\r\n\r\n"

    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))

    assert answer.startswith(b"HTTP/1.1 200")


def test_many_requests_on_one_connection_are_counted_apart(server: Running) -> None:
    request = GET + b"X-Filling: " + b"v" * 10_000 + b"\r\n\r\n"

    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(request * 20 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answers = b"".join(iter(lambda: connection.recv(65_536), b""))

    assert answers.count(b"HTTP/1.1 200") == 21


def test_what_is_no_request_is_told_so(server: Running) -> None:
    for nonsense in NONSENSE:
        status, document = answer_to(server.port, nonsense)

        assert (status, document["status"]) == (400, 400)
