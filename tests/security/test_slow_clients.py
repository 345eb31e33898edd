"""Clients that take their time over a request: cut off, told why, and in nobody's way (slowloris)."""

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.api.running import Running, environ, serving
from tideq.api.http_protocol import MIN_BODY_BYTES, BoundedProtocol, bounded
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


class Time:
    """A loop's clock and timers, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> "Time":
        self._due.append((self.now + seconds, call))
        return self

    def cancel(self) -> None:
        self._due.clear()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self._due if each[0] <= end]:
            first = min(due, key=lambda each: each[0])
            self._due.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end


class Line:
    """As much of a connection as the protocol asks about."""

    def __init__(self) -> None:
        self.is_closed = False
        self.said = b""

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes) -> None:
        self.said += data

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_protocol(self, protocol: Any) -> None: ...


async def _application(_scope: Any, _receive: Any, _send: Any) -> None: ...


def _nobody_answers(*_: Any) -> None:
    """What happens to a request once it is there is not the matter here."""


class Connection:
    """The protocol on a line and a clock of the test's: ten seconds of patience."""

    def __init__(self) -> None:
        self.time, self.line = Time(), Line()
        loop: Any = self.time
        config = uvicorn.Config(_application, log_config=None, lifespan="off")
        self.protocol: Any = bounded(10)(config, ServerState(), {}, _loop=loop)
        self.protocol._start_asgi_task = _nobody_answers
        self.protocol.connection_made(self.line)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def read(self) -> None:
        """What an application does with a body."""
        self.protocol.cycle.body.clear()
        self.protocol.flow.resume_reading()


@pytest.fixture
def connection() -> Connection:
    return Connection()


def test_a_body_that_comes_slowly_but_comes_is_waited_for(connection: Connection) -> None:
    connection.send(HEAD.replace(b"100000", b"10000000") + b"\r\n")

    for _ in range(20):
        connection.send(b" " * (MIN_BODY_BYTES // 4 + 1))
        connection.read()
        connection.time.advance(2.5)

    assert not connection.line.is_closed
    connection.time.advance(21)
    assert b" 408 " in connection.line.said


def test_a_body_that_we_do_not_read_is_not_late(connection: Connection) -> None:
    connection.send(HEAD + b"\r\n" + b" " * 90_000)
    assert connection.protocol.flow.read_paused

    connection.time.advance(100)

    assert not connection.line.is_closed


def test_a_request_that_is_there_may_be_worked_on_for_ever(connection: Connection) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nHost: tideq\r\n\r\n")

    connection.time.advance(1_000)

    assert not connection.line.is_closed


def test_bytes_that_came_while_the_service_was_held_up_still_count(connection: Connection) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\n")
    connection.time.advance(10.5)
    connection.send(b"Host: tideq\r\n\r\n")

    connection.time.advance(100)

    assert not connection.line.is_closed


def test_the_next_request_has_patience_of_its_own(connection: Connection) -> None:
    connection.send(b"GET /livez HTTP/1.1\r\nHost: tideq\r\n\r\n")
    connection.protocol.cycle.response_complete = True
    connection.time.advance(9)
    connection.send(b"GET /livez HTT")

    connection.time.advance(9)
    assert not connection.line.is_closed
    connection.time.advance(3)
    assert b" 408 " in connection.line.said


def test_patience_is_a_setting() -> None:
    assert read_service_settings({"TIDEQ_SLOW_CLIENT_SECONDS": "7.5"}).slow_client_ms == 7_500
    assert issubclass(bounded(7.5), BoundedProtocol)
    with pytest.raises(SettingsError, match="TIDEQ_SLOW_CLIENT_SECONDS"):
        read_service_settings({"TIDEQ_SLOW_CLIENT_SECONDS": "0"})
