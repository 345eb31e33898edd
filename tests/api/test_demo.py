"""The demo worker of `tideq up`, as a process against a service."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.bench import Bench, Json, until
from tests.api.running import Running
from tests.kit import Kit, make_kit
from tideq.cli.up import DEMO


@pytest.fixture
async def kit(client: Any, server: Running, queue_name: str) -> AsyncIterator[Kit]:
    kit = await make_kit(client, queue_name)
    yield kit
    await kit.assert_sound()


@pytest.fixture
def demo(server: Running) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", str(DEMO), server.url, str(os.getpid())]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        yield process
        process.kill()


async def finished(remote: Bench, task_id: str) -> Json:
    return await remote.call("GET", f"/api/v1/tasks/{task_id}/wait?timeout_seconds=20")


async def in_state(remote: Bench, task_id: str, state: str) -> None:
    async def is_so() -> bool:
        return (await remote.read(task_id))["status"] == state

    await until(is_so)


async def test_it_says_hello(demo: subprocess.Popen[bytes], remote: Bench, kit: Kit) -> None:
    named = await remote.submit("hello", parameters={"name": "tide"})
    nameless = await remote.submit("hello")

    assert (await finished(remote, named))["result"] == {"greeting": "Hello, tide!"}
    assert (await finished(remote, nameless))["result"] == {"greeting": "Hello, world!"}


async def test_it_tells_how_far_a_sleep_is(demo: subprocess.Popen[bytes], remote: Bench, kit: Kit) -> None:
    task_id = await remote.submit("sleep", parameters={"seconds": 1})

    async def has_progress() -> bool:
        return (await remote.read(task_id))["progress"] is not None

    await until(has_progress)
    assert (await finished(remote, task_id))["result"] == {"slept_seconds": 1}


async def test_a_sleep_that_makes_no_sense_fails_for_good(
    demo: subprocess.Popen[bytes], remote: Bench, kit: Kit
) -> None:
    nonsense = ("soon", -1, 10_000, None, [1])
    submitted = [await remote.submit("sleep", parameters={"seconds": seconds}) for seconds in nonsense]

    for task_id in submitted:
        task = await finished(remote, task_id)
        assert (task["status"], task["reason"]) == ("failed", "not_retriable")
        assert "seconds" in task["error"]["message"]


async def test_a_cancelled_sleep_frees_its_thread(demo: subprocess.Popen[bytes], remote: Bench, kit: Kit) -> None:
    sleeps = [await remote.submit("sleep", parameters={"seconds": 100}) for _ in range(4)]
    for task_id in sleeps:
        await in_state(remote, task_id, "executing")
    waiting = await remote.submit("hello")

    await remote.call("DELETE", f"/api/v1/tasks/{sleeps[0]}")

    assert (await finished(remote, waiting))["status"] == "completed"


async def test_a_termination_hands_back_what_it_holds(demo: subprocess.Popen[bytes], remote: Bench, kit: Kit) -> None:
    task_id = await remote.submit("sleep", parameters={"seconds": 100})
    await in_state(remote, task_id, "executing")

    demo.send_signal(signal.SIGTERM)

    assert await asyncio.to_thread(demo.wait, 60) == 0
    task = await remote.read(task_id)
    assert (task["status"], task["losses"], task["retry_count"]) == ("queued", 0, 0)
    assert demo.stderr is not None
    assert demo.stderr.read() == b""


async def test_it_joins_again_when_the_service_has_forgotten_it(
    demo: subprocess.Popen[bytes], remote: Bench, kit: Kit
) -> None:
    greeted = await finished(remote, await remote.submit("hello"))

    await remote.call("DELETE", f"/internal/workers/{greeted['assigned_worker_id']}")
    again = await finished(remote, await remote.submit("hello"))

    assert again["status"] == "completed"
    assert again["assigned_worker_id"] != greeted["assigned_worker_id"]


@pytest.fixture
def shell(server: Running) -> Iterator[subprocess.Popen[str]]:
    """Starts the worker, says its process id, and waits for it."""
    command = f"'{sys.executable}' -I '{DEMO}' {server.url} $$ & echo $!; wait"
    with subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


async def test_it_ends_when_whoever_started_it_has_gone(
    server: Running, remote: Bench, shell: subprocess.Popen[str]
) -> None:
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    assert (await finished(remote, await remote.submit("hello")))["status"] == "completed"

    shell.kill()
    server.process.kill()

    await until(lambda: _is_gone(pid))


async def test_it_ends_also_with_a_result_that_nobody_hears(
    server: Running, remote: Bench, shell: subprocess.Popen[str]
) -> None:
    assert shell.stdout is not None
    pid = int(shell.stdout.readline())
    await in_state(remote, await remote.submit("sleep", parameters={"seconds": 0.5}), "executing")

    server.process.kill()
    await asyncio.sleep(1)  # in which it ends its task, and finds nobody to tell: nothing outside shows that
    shell.kill()

    await until(lambda: _is_gone(pid))


async def _is_gone(pid: int) -> bool:
    return not _process(pid).exists()


def _process(pid: int) -> Path:
    return Path(f"/proc/{pid}")
