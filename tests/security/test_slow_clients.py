"""Clients that take their time over a request: cut off, told why, and in nobody's way (slowloris)."""

import json
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.api.running import Running, environ, serving
from tests.api.wire import ByHand
from tideq.api.edge.problems import protocol_refusal
from tideq.api.http11.connection import protocol_with
from tideq.api.http11.limits import MIN_BODY_BYTES
from tideq.api.settings import read_service_settings
from tideq.queue_core.settings import SettingsError

HEAD = b"POST /api/v1/tasks HTTP/1.1\r\nHost: tideq\r\nContent-Length: 100000\r\n"
DRIP_SECONDS = 0.05
SLOW = {
    "a head": (b"GET /livez HTTP/1.1\r\nHost: tideq\r\nX-Slow: ", b"v"),
    "headers": (b"GET /livez HTTP/1.1\r\nHost: tideq\r\n", b"X-Slow: 1\r\n"),
    "a first line": (b"GET /", b"a"),
    "a body": (HEAD + b"\r\n", b" "),
    "a chunked body": (b"POST /api/v1/tasks HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}
CROWD = 100


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, running_stores: Callable[[str], Any]) -> Iterator[Running]:
    settings = environ(running_stores("valkey").url, uuid.uuid4().hex[:12], TIDEQ_SLOW_CLIENT_SECONDS="0.5")
    with serving(settings, tmp_path_factory.mktemp("impatient")) as running:
        yield running


def dripped(port: int, begin: bytes, drop: bytes) -> bytes:
    """What the server says to one who sends a little now and then, until it has had enough."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(DRIP_SECONDS)
        connection.sendall(begin)
        while True:
            try:
                got = connection.recv(65_536)
            except TimeoutError:
                connection.sendall(drop)
                continue
            except ConnectionError:
                return heard
            if not got:
                return heard
            heard += got


@pytest.mark.parametrize("kind", SLOW)
def test_who_dawdles_is_told_so_and_cut_off(impatient: Running, kind: str) -> None:
    head, _, body = dripped(impatient.port, *SLOW[kind]).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 408 ")
    assert json.loads(body)["type"].endswith("/request-too-slow")


@pytest.mark.parametrize("begin", [b"", b"\r\n"], ids=["nothing", "an empty line"])
def test_who_only_connects_is_cut_off(impatient: Running, begin: bytes) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=60) as connection:
        connection.sendall(begin)

        heard = b"".join(iter(lambda: connection.recv(65_536), b""))

    assert heard == b"" or heard.startswith(b"HTTP/1.1 408 ")


async def test_a_crowd_of_slow_clients_is_in_nobodys_way(impatient: Running) -> None:
    crowd = [socket.create_connection(("127.0.0.1", impatient.port), timeout=60) for _ in range(CROWD)]
    for each in crowd:
        each.sendall(HEAD)

    async with httpx.AsyncClient(base_url=impatient.url, timeout=60) as http:
        answer = await http.post("/api/v1/tasks", json={"task_type": "resize"})
    ends = [each.recv(20) for each in crowd]
    for each in crowd:
        each.close()

    assert answer.status_code == 201
    assert {end[:13] for end in ends} == {b"HTTP/1.1 408 "}
    assert "Traceback" not in impatient.complaints()


async def test_who_waits_for_an_answer_is_not_slow(impatient: Running) -> None:
    async with httpx.AsyncClient(base_url=impatient.url, timeout=60) as http:
        worker = (await http.post("/internal/workers/register", json={"task_types": ["nobody-submits-this"]})).json()
        polled = await http.post(
            f"/internal/workers/{worker['worker_id']}/poll", json={"available_capacity": 1, "wait_seconds": 2}
        )
        again = await http.get("/livez")

    assert (polled.status_code, polled.json()["tasks"], again.status_code) == (200, [], 200)


@pytest.fixture
async def connection() -> AsyncIterator[ByHand]:
    """With ten seconds of patience."""
    connection = ByHand()
    yield connection
    await connection.close()


async def test_a_body_that_comes_slowly_but_comes_is_waited_for(connection: ByHand) -> None:
    connection.send(HEAD.replace(b"100000", b"10000000") + b"\r\n")
    call = await connection.desk.call()

    for _ in range(20):
        connection.send(b" " * (MIN_BODY_BYTES // 4 + 1))
        await call.receive()
        connection.time.advance(2.5)

    assert not connection.line.is_closed
    connection.time.advance(21)
    assert b" 408 " in connection.line.said


async def test_a_body_that_we_do_not_read_is_not_late(connection: ByHand) -> None:
    connection.send(HEAD + b"\r\n" + b" " * 90_000)
    assert not connection.line.is_read

    connection.time.advance(100)

    assert not connection.line.is_closed


async def test_a_request_that_is_there_may_be_worked_on_for_ever(connection: ByHand) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nHost: tideq\r\n\r\n")

    connection.time.advance(1_000)

    assert not connection.line.is_closed


async def test_bytes_that_came_while_the_service_was_held_up_still_count(connection: ByHand) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\n")
    connection.time.advance(10.5)
    connection.send(b"Host: tideq\r\n\r\n")

    connection.time.advance(100)

    assert not connection.line.is_closed


async def test_the_next_request_has_patience_of_its_own(connection: ByHand) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nHost: tideq\r\n\r\n")
    await (await connection.desk.call()).answer()
    connection.time.advance(9)
    connection.send(b"GET /livez HTT")

    connection.time.advance(9)
    assert not connection.line.is_closed
    connection.time.advance(3)
    assert b" 408 " in connection.line.said


def test_patience_is_a_setting() -> None:
    assert read_service_settings({"TIDEQ_SLOW_CLIENT_SECONDS": "7.5"}).slow_client_ms == 7_500
    protocol = protocol_with(protocol_refusal, 7.5, 75)
    assert (protocol.read_timeout_seconds, protocol.keep_alive_seconds) == (7.5, 75)
    with pytest.raises(SettingsError, match="TIDEQ_SLOW_CLIENT_SECONDS"):
        read_service_settings({"TIDEQ_SLOW_CLIENT_SECONDS": "0"})
