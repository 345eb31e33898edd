"""Answers that never arrive: what they held goes back at once and free of charge. RELIABILITY F4."""

import asyncio
import itertools
import json
import random
import socket
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench, Json, until
from tests.api.proxy import Proxy, proxying, reset
from tests.api.running import Running, environ, serving
from tests.contract.situations import events
from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tideq.queue_core.settings import Leases, QueueSettings
from tideq.queue_core.task import Task

SHARE_RESET = 0.3
TASK_COUNT = 300
CALLS = ("poll", "sync")
LEAVING: tuple[Callable[[socket.socket], None], ...] = (reset, socket.socket.close)


@pytest.fixture
def settings() -> QueueSettings:
    """Assignments that lapse only long after a test is over: whatever comes back was handed back."""
    return QueueSettings(leases=Leases(assignment_ms=600_000))


@pytest.fixture
async def store_proxy(store: StoreUnderTest) -> AsyncIterator[Proxy]:
    async with proxying(store.url) as proxy:
        yield proxy


@pytest.fixture
def server_settings(store_proxy: Proxy, queue_name: str) -> dict[str, str]:
    """The service reaches its store through the proxy, so that a claim's answer can be held on its way."""
    url = f"redis://127.0.0.1:{store_proxy.port}"
    return environ(url, queue_name, TIDEQ_ASSIGNMENT_TIMEOUT_SECONDS="600")


@pytest.fixture
async def server(server_settings: dict[str, str], tmp_path: Path) -> AsyncIterator[Running]:
    """Started in a thread: the proxy it needs to start lives in this one."""
    running = serving(server_settings, tmp_path)
    yield await asyncio.to_thread(running.__enter__)
    running.__exit__(None, None, None)


@pytest.fixture
async def kit(client: Any, server: Running, queue_name: str, settings: QueueSettings) -> AsyncIterator[Kit]:
    """Looks at the process's queue from outside, past the proxy."""
    kit = await make_kit(client, queue_name, settings)
    yield kit
    await kit.assert_sound()


def _ask(port: int, worker_id: str, call: str, body: Json) -> socket.socket:
    """A request on a connection of its own, that nobody reads yet."""
    content = json.dumps(body).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect(("127.0.0.1", port))
    path = f"/internal/workers/{worker_id}/{call}"
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


async def _registered(remote: Bench) -> str:
    """A worker that has polled before: the script is loaded, so the next answer of the store is a claim's."""
    worker_id = await remote.register(capacity=5)
    await remote.poll(worker_id)
    return worker_id


async def _counted(kit: Kit) -> dict[str, int]:
    return (await kit.insight.stats()).by_state


async def _until_held(kit: Kit, count: int) -> None:
    async def is_so() -> bool:
        counted = await _counted(kit)
        return counted["assigned"] + counted["executing"] == count

    await until(is_so)


async def _until_all_wait(kit: Kit, count: int) -> None:
    async def is_so() -> bool:
        return await _counted(kit) == {"queued": count, "assigned": 0, "executing": 0}

    await until(is_so)


def _price(task: Task) -> tuple[int, int, int]:
    return task.deliveries, task.retry_count, task.losses


async def _leave_before_the_answer(
    server: Running,
    kit: Kit,
    store_proxy: Proxy,
    worker_id: str,
    call: str,
    body: Json,
    leave: Callable[[socket.socket], None],
) -> None:
    """Of three tasks that wait, all are claimed and go back."""
    store_proxy.hold_answers()
    caller = _ask(server.port, worker_id, call, {"available_capacity": 3, **body})
    await _until_held(kit, 3)
    leave(caller)
    store_proxy.release_answers()
    await _until_all_wait(kit, 3)


async def test_a_caller_that_leaves_between_claim_and_answer_leaves_nothing_behind(
    server: Running, remote: Bench, kit: Kit, store_proxy: Proxy
) -> None:
    worker_id = await _registered(remote)
    task_ids = [await remote.submit() for _ in range(3)]

    for call, leave, poll_id, wait_seconds in itertools.product(CALLS, LEAVING, (None, "p1"), (0, 20)):
        body = {"wait_seconds": wait_seconds, "poll_id": poll_id}
        await _leave_before_the_answer(server, kit, store_proxy, worker_id, call, body, leave)

        tasks = [await kit.read(task_id) for task_id in task_ids]
        assert {(task.reason, task.attempt, _price(task)) for task in tasks} == {("released", 0, (0, 0, 0))}

    again = (await remote.poll(worker_id, available_capacity=3))["tasks"]
    assert [(task["task_id"], task["attempt"]) for task in again] == [(task_id, 1) for task_id in task_ids]


async def test_a_caller_that_leaves_before_it_hears_what_was_started_for_it_leaves_nothing_behind(
    server: Running, remote: Bench, kit: Kit, store_proxy: Proxy
) -> None:
    """Free of charge, though an attempt that was started keeps its number."""
    worker_id = await _registered(remote)
    task_ids = [await remote.submit() for _ in range(3)]

    for number, (call, leave, wait_seconds) in enumerate(itertools.product(CALLS, LEAVING, (0, 20)), 1):
        body = {"wait_seconds": wait_seconds, "poll_id": "p1", "start_claimed": True}
        await _leave_before_the_answer(server, kit, store_proxy, worker_id, call, body, leave)

        tasks = [await kit.read(task_id) for task_id in task_ids]
        assert {(task.reason, task.attempt, _price(task)) for task in tasks} == {("released", number, (0, 0, 0))}


async def test_a_caller_that_leaves_in_the_middle_of_a_large_answer_leaves_nothing_behind(
    server: Running, remote: Bench, kit: Kit
) -> None:
    """More than any socket buffers, so that the answer is still being written when its reader is gone."""
    worker_id = await remote.register(capacity=60)
    for _ in range(60):
        await remote.submit(parameters={"a": "x" * 250_000})

    for call, poll_id in itertools.product(CALLS, (None, "p1")):
        caller = _ask(server.port, worker_id, call, {"available_capacity": 60, "poll_id": poll_id})
        assert (await asyncio.to_thread(caller.recv, 15)).startswith(b"HTTP/1.1 200")
        reset(caller)
        await _until_all_wait(kit, 60)

    assert {event.reason for event in await events(kit)} == {"submitted", "claimed", "released"}


async def test_a_caller_that_hangs_up_with_its_answer_keeps_it(server: Running, remote: Bench, kit: Kit) -> None:
    """As a client without keep-alive does, curl for one: it has the tasks, and nobody else may get them."""
    worker_id = await remote.register(capacity=100)
    for _ in range(100):
        await remote.submit()

    for call in CALLS * 50:
        caller = _ask(server.port, worker_id, call, {"available_capacity": 1})
        task = await asyncio.to_thread(_read_and_hang_up, caller)
        await remote.tell(worker_id, "start", task)

    assert {event.reason for event in await events(kit)} == {"submitted", "claimed", "started"}


def _read_and_hang_up(connection: socket.socket) -> Json:
    """Reads as much as Content-Length says, and leaves that instant."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65_536)
    head, _, content = answer.partition(b"\r\n\r\n")
    length = int(
        next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    )
    while len(content) < length:
        content += connection.recv(65_536)
    connection.close()
    (task,) = json.loads(content)["tasks"]
    return task


async def test_the_poll_that_took_over_keeps_what_the_first_one_could_not_deliver(
    server: Running, remote: Bench, kit: Kit, store_proxy: Proxy
) -> None:
    """The first answer is withdrawn only after the second went out with the same tasks: too late, it stands."""
    worker_id = await _registered(remote)
    await remote.submit()
    asked = {"available_capacity": 1, "wait_seconds": 20, "poll_id": "p1"}

    store_proxy.hold_answers()
    caller = _ask(server.port, worker_id, "poll", asked)
    await _until_held(kit, 1)
    (second,) = (await kit.queue.claim(worker_id, 1, poll_id="p1")).tasks
    reset(caller)
    store_proxy.release_answers()
    server.process.terminate()  # It finishes first what it has begun.
    assert await asyncio.to_thread(server.process.wait, 60) == 0

    assert (await kit.read(second.task_id)).state == "assigned"
    await kit.start(second, worker_id)


async def test_a_poll_that_comes_late_takes_nothing_from_the_one_that_was_answered(
    server: Running, remote: Bench, kit: Kit, store_proxy: Proxy
) -> None:
    """Its caller asked again and has the tasks; the old request was merely slow, and repeats that answer to nobody."""
    worker_id = await _registered(remote)
    await remote.submit()
    (answered,) = (await kit.queue.claim(worker_id, 1, poll_id="p1")).tasks

    store_proxy.hold_answers()
    caller = _ask(server.port, worker_id, "poll", {"available_capacity": 1, "poll_id": "p1"})
    await until(lambda: _is_answered_twice(kit, worker_id))
    reset(caller)
    store_proxy.release_answers()
    server.process.terminate()
    assert await asyncio.to_thread(server.process.wait, 60) == 0

    assert (await kit.read(answered.task_id)).state == "assigned"
    await kit.start(answered, worker_id)


async def _is_answered_twice(kit: Kit, worker_id: str) -> bool:
    kept = await kit.client.get(f"{kit.keys.prefix('poll')}{worker_id}:p1")
    return kept.startswith(b"2 ")


@pytest.mark.parametrize("starts", [False, True], ids=["assigned", "started"])
async def test_nothing_is_lost_when_a_third_of_the_answers_is(
    server: Running, remote: Bench, kit: Kit, *, starts: bool
) -> None:
    """F4: a proxy resets polls at any moment; whoever polls asks again with the same poll_id, as it should."""
    chance = random.Random(20_260_302)
    task_ids = [await remote.submit() for _ in range(TASK_COUNT)]
    async with proxying(server.url) as proxy:
        proxy.resets_after = lambda data: b"/poll" in data and chance.random() < SHARE_RESET / 2
        proxy.resets_before = lambda data: b'"tasks"' in data and chance.random() < SHARE_RESET / 2
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{proxy.port}", timeout=40) as http:
            completed = await asyncio.gather(*(_work(remote, http, starts=starts) for _ in range(4)))

    done = sum(completed, Counter[str]())
    tasks = [task for task in await kit.queue.read_many(task_ids) if task is not None]
    assert proxy.reset_count > TASK_COUNT * SHARE_RESET / 3
    assert done == Counter(task_ids)
    assert {(task.state, _price(task)) for task in tasks} == {("completed", (0, 0, 0))}
    assert starts or {task.attempt for task in tasks} == {1}


async def _work(remote: Bench, http: httpx.AsyncClient, *, starts: bool) -> Counter[str]:
    """Polls through the proxy, all else goes straight: until nothing is left."""
    worker_id, done = await remote.register(), Counter[str]()
    while task := await _next_task(http, worker_id, starts=starts):
        assert task["status"] == ("executing" if starts else "assigned")
        if not starts:
            await remote.tell(worker_id, "start", task)
        await remote.tell(worker_id, "result", task, status="completed")
        done[task["task_id"]] += 1
    return done


async def _next_task(http: httpx.AsyncClient, worker_id: str, *, starts: bool) -> Json | None:
    asked = {"available_capacity": 1, "wait_seconds": 0.5, "poll_id": uuid.uuid4().hex, "start_claimed": starts}
    while True:
        try:
            answer = await http.post(f"/internal/workers/{worker_id}/poll", json=asked)
        except httpx.TransportError:
            continue
        return next(iter(answer.json()["tasks"]), None)
