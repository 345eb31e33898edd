"""`tideq serve --processes`: several processes on one port, and what becomes of them."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bench import until
from tests.api.running import Running, serving, tideq
from tests.api.traffic import Traffic
from tests.kit import Kit, make_kit
from tests.races.outbox import audit
from tideq.api.server import GRACE_SECONDS

PROCESSES = 3
DEATHS = 8


@pytest.fixture
def many(server_settings: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    with serving(server_settings, tmp_path, 0, "--processes", str(PROCESSES)) as running:
        yield running


@pytest.fixture
async def kit(client: Any, many: Running, queue_name: str) -> AsyncIterator[Kit]:
    kit = await make_kit(client, queue_name)
    yield kit
    await kit.assert_sound()


def children(running: Running) -> list[int]:
    pid = running.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """A dead process whose parent has not heard of it yet is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was looked for, or while it was
        return False


async def all_gone(pids: list[int]) -> None:
    async def are_gone() -> bool:
        return not any(map(is_alive, pids))

    await until(are_gone)


@contextlib.contextmanager
def stalled_upload(port: int) -> Generator[None]:
    """A request whose body never comes: what is under way, and would hold a stop up as long as it may."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(
            b"POST /api/v1/tasks HTTP/1.1\r\nHost: tideq\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        yield


def test_every_process_is_a_child_and_there_are_as_many_as_asked_for(many: Running) -> None:
    answer = httpx.get(f"{many.url}/readyz")

    assert answer.status_code == 200
    assert len(children(many)) == PROCESSES


def test_a_key_pressed_at_the_terminal_reaches_the_parent_alone(many: Running) -> None:
    groups = {os.getpgid(pid) for pid in children(many)}

    assert os.getpgid(many.process.pid) not in groups


def test_one_process_has_no_parent(server: Running) -> None:
    assert children(server) == []


async def test_killed_processes_are_replaced_and_nothing_is_lost(many: Running, kit: Kit) -> None:
    before = set(children(many))
    killed: set[int] = set()

    async def kill_one_after_the_other() -> None:
        for _ in range(DEATHS):
            enough = len(traffic.completed) + 20
            pid = next(pid for pid in children(many) if is_alive(pid))
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            await until(lambda: _is_replaced(many, killed))
            await until(partial(_has_grown, traffic, enough))

    async with Traffic([many.url]) as traffic:
        await traffic.run(kill_one_after_the_other())

    assert len(killed) == DEATHS
    assert not killed & set(children(many))
    assert set(children(many)) != before
    traffic.assert_nothing_lost()
    stories = await audit(kit)
    assert set(stories) == set(traffic.acknowledged)
    # Submitted, claimed, started, completed: what a dead process had claimed the repeated poll got, and nothing lapsed.
    assert {len(story) for story in stories.values()} == {4}


async def _is_replaced(many: Running, killed: set[int]) -> bool:
    living = [pid for pid in children(many) if is_alive(pid)]
    return len(living) == PROCESSES and not killed & set(living)


async def _has_grown(traffic: Traffic, count: int) -> bool:
    return len(traffic.completed) >= count


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_them_all(many: Running, number: signal.Signals) -> None:
    pids = children(many)

    many.process.send_signal(number)

    assert await asyncio.to_thread(many.process.wait, 60) == 0
    assert not any(map(is_alive, pids))
    assert many.complaints() == ""


async def test_a_signal_answers_waiting_polls_of_every_process(many: Running, kit: Kit) -> None:
    async with Traffic([many.url]) as traffic:
        workers = [(await traffic.call("/internal/workers/register", {}))["worker_id"] for _ in range(30)]
        registered = await _due(kit)
        await asyncio.sleep(0.01)
        asked = {"available_capacity": 1, "wait_seconds": 30}
        async with httpx.AsyncClient(timeout=40) as http, asyncio.TaskGroup() as group:
            urls = [f"{many.url}/internal/workers/{worker_id}/poll" for worker_id in workers]
            polls = [group.create_task(http.post(url, json=asked)) for url in urls]
            await until(lambda: _have_polled(kit, registered))
            many.process.terminate()

    assert [poll.result().json()["tasks"] for poll in polls] == [[]] * len(polls)
    assert await asyncio.to_thread(many.process.wait, 60) == 0


async def _due(kit: Kit) -> dict[bytes, float]:
    """When each worker's heartbeat falls due: a poll moves it."""
    return dict(await kit.client.zrange(kit.keys.key("workers"), 0, -1, withscores=True))


async def _have_polled(kit: Kit, before: dict[bytes, float]) -> bool:
    now = await _due(kit)
    return all(now[worker_id] > due for worker_id, due in before.items())


async def test_a_second_signal_ends_them_at_once(many: Running) -> None:
    pids = children(many)
    with stalled_upload(many.port):
        many.process.terminate()
        await until(lambda: _is_refusing(many.port))
        assert many.process.poll() is None

        many.process.terminate()

        await asyncio.to_thread(many.process.wait, GRACE_SECONDS / 2)
    assert not any(map(is_alive, pids))


async def _is_refusing(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


async def test_a_process_that_hears_no_signal_is_killed(many: Running) -> None:
    pids = children(many)
    os.kill(pids[0], signal.SIGSTOP)

    many.process.terminate()
    await all_gone(pids[1:])
    many.process.terminate()

    assert await asyncio.to_thread(many.process.wait, 60) == 1
    assert not any(map(is_alive, pids))


async def test_a_killed_parent_takes_its_children_along(many: Running) -> None:
    pids = children(many)

    many.process.kill()

    await all_gone(pids)


def test_what_keeps_them_from_starting_is_said_once(server_settings: dict[str, str]) -> None:
    unreadable = {**server_settings, "REDIS_URL": "redis://127.0.0.1:port"}

    ended = tideq(unreadable, "serve", "--port", "0", "--processes", "4")

    assert ended.returncode == 2
    assert "REDIS_URL" in ended.stderr
    assert ended.stderr.count("error:") == 1
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_port_in_use_is_said(many: Running, server_settings: dict[str, str]) -> None:
    ended = tideq(server_settings, "serve", "--port", str(many.port), "--processes", "2")

    assert ended.returncode == 1
    assert "in use" in ended.stderr


@pytest.mark.parametrize("count", ["0", "65"])
def test_a_count_that_makes_no_sense_is_refused(count: str, server_settings: dict[str, str]) -> None:
    ended = tideq(server_settings, "serve", "--port", "0", "--processes", count)

    assert ended.returncode == 2
    assert "--processes" in ended.stderr
