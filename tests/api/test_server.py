"""The service as a process: connections that go away, signals, ports in use, and being killed."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench, held, until
from tests.api.running import Running, serving, tideq
from tests.kit import Kit, make_kit


@pytest.fixture
async def kit(client: Any, server: Running, queue_name: str) -> AsyncIterator[Kit]:
    """Looks at the process's queue from outside."""
    kit = await make_kit(client, queue_name)
    yield kit
    await kit.assert_sound()


def _open_poll(port: int, worker_id: str) -> socket.socket:
    """A waiting poll on a connection of its own, that nobody reads yet."""
    body = json.dumps({"available_capacity": 1, "wait_seconds": 30}).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = f"POST /internal/workers/{worker_id}/poll HTTP/1.1\r\nHost: tideq\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


async def _heard(kit: Kit, before: dict[bytes, float]) -> None:
    """Until the store has seen a poll of every worker since."""

    async def is_so() -> bool:
        now = await _due(kit)
        return all(now[worker_id] > due for worker_id, due in before.items())

    await until(is_so)


async def _due(kit: Kit) -> dict[bytes, float]:
    """When each worker's heartbeat falls due: a poll moves it."""
    return dict(await kit.client.zrange(kit.keys.key("workers"), 0, -1, withscores=True))


async def test_a_poll_whose_caller_has_gone_gets_nothing_claimed(server: Running, remote: Bench, kit: Kit) -> None:
    gone = [await remote.register() for _ in range(10)]
    here = await remote.register()
    before = {worker_id.encode(): (await _due(kit))[worker_id.encode()] for worker_id in gone}
    await asyncio.sleep(0.01)
    polls = [_open_poll(server.port, worker_id) for worker_id in gone]
    await _heard(kit, before)

    for poll in polls:
        poll.close()
    task_id = await remote.submit()
    answer = await asyncio.wait_for(remote.poll(here, wait_seconds=5), 8)

    assert [task["task_id"] for task in answer["tasks"]] == [task_id]
    assert answer["tasks"][0]["attempt"] == 1


async def test_a_caller_that_goes_away_is_no_error_in_the_log(server: Running, remote: Bench, kit: Kit) -> None:
    worker_id = await remote.register()
    before = await _due(kit)
    await asyncio.sleep(0.01)
    poll = _open_poll(server.port, worker_id)
    await _heard(kit, before)

    poll.close()
    await remote.submit()
    server.process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(server.process.wait, 60)

    assert server.complaints() == ""


async def test_a_termination_answers_every_waiting_poll_and_ends_well(server: Running, remote: Bench, kit: Kit) -> None:
    workers = [await remote.register() for _ in range(20)]
    before = await _due(kit)
    await asyncio.sleep(0.01)
    polls = [_open_poll(server.port, worker_id) for worker_id in workers]
    await _heard(kit, before)

    server.process.send_signal(signal.SIGTERM)
    answers = [await asyncio.to_thread(_read_all, poll) for poll in polls]

    assert await asyncio.to_thread(server.process.wait, 60) == 0
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert json.loads(body)["tasks"] == []
    assert server.complaints() == ""


def _read_all(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_a_second_service_on_the_same_port_says_so(server: Running, server_settings: dict[str, str]) -> None:
    ended = tideq(server_settings, "serve", "--port", str(server.port))

    assert ended.returncode not in (0, -signal.SIGKILL)
    assert str(server.port) in ended.stderr
    assert "in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


async def test_a_killed_service_loses_nothing(
    server: Running, remote: Bench, kit: Kit, server_settings: dict[str, str], tmp_path: Path
) -> None:
    worker_id = await remote.register(capacity=5)
    started_id = await remote.submit()
    started = await remote.started(worker_id)
    polled_id = await remote.submit()
    polled = await remote.claimed(worker_id, poll_id="p1")
    acknowledged: list[str] = []

    async def submit_until_killed() -> None:
        while True:
            acknowledged.append(await remote.submit("crawl"))
            if len(acknowledged) == 100:
                server.process.kill()

    submitters = [asyncio.create_task(submit_until_killed()) for _ in range(5)]
    ends = await asyncio.gather(*submitters, return_exceptions=True)

    with serving(server_settings, tmp_path, server.port) as restarted:
        async with httpx.AsyncClient(base_url=restarted.url, timeout=40) as http:
            bench = Bench(http)
            assert held(await bench.claimed(worker_id, poll_id="p1")) == held(polled)
            for task in (started, polled):
                if task is polled:
                    await bench.tell(worker_id, "start", task)
                await bench.tell(worker_id, "result", task, status="completed", result=1)
            states = {task_id: (await bench.read(task_id))["status"] for task_id in acknowledged}
            finished = [(await bench.read(task_id))["status"] for task_id in (started_id, polled_id)]

    assert all(isinstance(end, httpx.TransportError) for end in ends), ends
    assert len(states) >= 100
    assert set(states.values()) == {"queued"}
    assert finished == ["completed", "completed"]


@pytest.mark.own_protocol
async def test_a_connection_in_use_is_told_to_close_before_it_is_closed(
    server: Running, remote: Bench, kit: Kit
) -> None:
    """What a caller sends to a connection that is being closed is reset, and it cannot know whether it was heard."""
    kept = await asyncio.open_connection("127.0.0.1", server.port)
    first = await _asked(*kept)
    worker_id = await remote.register(task_types=["other"])
    before = await _due(kit)
    await asyncio.sleep(0.01)
    poll = await asyncio.open_connection(sock=_open_poll(server.port, worker_id))
    await _heard(kit, before)

    server.process.send_signal(signal.SIGTERM)
    stopped = await poll[0].readuntil(b"\r\n\r\n")
    last = await _asked(*kept)
    rest = await kept[0].read()
    status = await asyncio.to_thread(server.process.wait, 60)

    assert b"connection: close" not in first
    assert b"connection: close" in stopped
    assert last.startswith(b"HTTP/1.1 201")
    assert last.count(b"connection: close") == 1
    assert rest.startswith(b"{")
    assert status == 0
    for _, writer in (poll, kept):
        writer.close()


async def _asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The head of the answer to a submission; of one that is to be followed by more, the body is read too."""
    body = b'{"task_type": "resize"}'
    writer.write(b"POST /api/v1/tasks HTTP/1.1\r\nHost: tideq\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    head = (await reader.readuntil(b"\r\n\r\n")).lower().replace(b"http/1.1", b"HTTP/1.1")
    if b"connection: close" not in head:
        length = next(line for line in head.splitlines() if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
    return head
