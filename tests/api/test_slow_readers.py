"""Callers that stay connected and do not read what they asked for. RELIABILITY F46."""

import asyncio
import contextlib
import functools
import itertools
import json
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.bench import Bench, until
from tests.api.listening import EVENTS
from tests.api.running import Running, environ, serving
from tests.api.wire import KEEP_ALIVE_SECONDS, PATIENCE_SECONDS, ByHand
from tests.contract.situations import events, submit_count
from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tideq.api.http11.limits import MIN_SENT_BYTES
from tideq.queue_core.settings import Leases, QueueSettings

GET = b"GET / HTTP/1.1\r\nHost: tideq\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\n\r\n"
TASK_COUNT = 30
PARAMETERS = json.dumps({"p": "x" * 20_000}).encode()
"""All of them are less than what a kernel takes for a reader that does not read, where it is let to."""


@pytest.fixture
async def connection() -> AsyncIterator[ByHand]:
    connection = ByHand()
    yield connection
    await connection.close()


async def _answer_unread(connection: ByHand, request: bytes = GET, size: int = 100_000) -> None:
    connection.send(request)
    await (await connection.desk.call()).answer(b"x" * size)
    connection.line.untaken_bytes = size
    connection.protocol.pause_writing()


@pytest.mark.parametrize("request_", [GET, OLD, GET + GET[:10]], ids=["kept alive", "closing", "more to come"])
async def test_an_answer_that_nobody_reads_ends_with_the_patience(connection: ByHand, request_: bytes) -> None:
    await _answer_unread(connection, request_)

    connection.time.advance(PATIENCE_SECONDS - 1)
    assert not connection.line.is_aborted
    connection.time.advance(PATIENCE_SECONDS + 2)

    assert connection.line.is_aborted


async def test_an_application_that_waits_for_its_reader_hears_that_it_is_gone(connection: ByHand) -> None:
    connection.send(GET)
    call = await connection.desk.call()
    await call.body()
    await call.begin(200)
    await call.go_on(b"first")
    connection.line.untaken_bytes = 100_000
    connection.protocol.pause_writing()

    writing = asyncio.ensure_future(call.go_on(b"second"))
    connection.time.advance(2 * PATIENCE_SECONDS + 1)
    assert connection.line.is_aborted
    connection.protocol.connection_lost(None)
    await writing

    assert (await call.receive())["type"] == "http.disconnect"
    assert b"second" not in connection.line.said


async def test_a_slow_reader_that_gets_on_keeps_its_connection(connection: ByHand) -> None:
    await _answer_unread(connection, size=50 * MIN_SENT_BYTES)

    for _ in range(20):
        connection.time.advance(PATIENCE_SECONDS)
        connection.line.untaken_bytes -= 2 * MIN_SENT_BYTES
    assert not connection.line.is_closed

    connection.line.untaken_bytes = 0
    connection.protocol.resume_writing()
    connection.time.advance(KEEP_ALIVE_SECONDS / 2)
    assert not connection.line.is_closed


@pytest.mark.parametrize("taken_bytes", [1, 1_024, 16_383])
async def test_a_reader_who_trickles_is_as_bad_as_a_body_that_does(connection: ByHand, taken_bytes: int) -> None:
    await _answer_unread(connection)

    for _ in range(3):
        connection.time.advance(PATIENCE_SECONDS)
        connection.line.untaken_bytes -= taken_bytes

    assert connection.line.is_aborted


async def test_a_short_rest_of_an_answer_has_to_be_taken_whole(connection: ByHand) -> None:
    await _answer_unread(connection, size=MIN_SENT_BYTES // 2)

    connection.time.advance(PATIENCE_SECONDS)
    connection.line.untaken_bytes = 0
    connection.protocol.resume_writing()
    connection.time.advance(KEEP_ALIVE_SECONDS / 2)

    assert not connection.line.is_closed


@pytest.fixture
def server_settings(store: StoreUnderTest, queue_name: str) -> dict[str, str]:
    """Assignments and executions lapse only long after a test is over: whatever comes back was handed back."""
    return environ(store.url, queue_name, TIDEQ_SLOW_CLIENT_SECONDS="0.5", TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS="600")


@pytest.fixture
async def server(server_settings: dict[str, str], tmp_path: Path) -> AsyncIterator[Running]:
    with serving(server_settings, tmp_path) as running:
        yield running


@pytest.fixture
async def kit(client: Any, server: Running, queue_name: str) -> AsyncIterator[Kit]:
    kit = await make_kit(client, queue_name, QueueSettings(leases=Leases(assignment_ms=600_000)))
    yield kit
    await kit.assert_sound()


def _ask(port: int, request: str, content: bytes = b"") -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(f"{request}\r\nHost: t\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


def _rest(connection: socket.socket) -> int:
    """How much of the answer arrives before the connection ends."""
    connection.settimeout(20)
    with connection, contextlib.suppress(ConnectionResetError):
        return sum(map(len, iter(lambda: connection.recv(65_536), b"")))
    return 0


async def test_tasks_of_an_answer_that_nobody_reads_go_back(kit: Kit, remote: Bench, server: Running) -> None:
    worker_id = await remote.register(capacity=TASK_COUNT)
    for _ in range(TASK_COUNT):
        await kit.submit(parameters=PARAMETERS)
    body = json.dumps({"available_capacity": TASK_COUNT, "poll_id": "p", "start_claimed": True}).encode()

    async def are_back(started_count: int) -> bool:
        """Each has been started as often as it was asked for, and waits again."""
        reasons = Counter(event.reason for event in await events(kit))
        assert reasons["started"] <= started_count
        return reasons["started"] == started_count and (await kit.insight.stats()).by_state["queued"] == TASK_COUNT

    for number, (call, version) in enumerate(itertools.product(("poll", "sync"), ("1.1", "1.0")), 1):
        slow = _ask(server.port, f"POST /internal/workers/{worker_id}/{call} HTTP/{version}", body)
        await until(functools.partial(are_back, number * TASK_COUNT))
        assert await asyncio.to_thread(_rest, slow) < TASK_COUNT * len(PARAMETERS)


async def test_an_event_stream_that_nobody_reads_ends(kit: Kit, remote: Bench, server: Running) -> None:
    """Although it has not fallen behind: what waits for it is within its share."""
    slow = _ask(server.port, f"GET {EVENTS} HTTP/1.1")

    async def are_listening(count: int) -> bool:
        told = (await remote.http.get("/metrics")).text
        return re.search(rf"^tideq_event_listeners\{{.*\}} {count}\.0$", told, re.MULTILINE) is not None

    await until(lambda: are_listening(1))
    await submit_count(kit, 900)

    await until(lambda: are_listening(0))
    slow.close()
