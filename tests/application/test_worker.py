"""A worker that is imported, configured and awaited."""

import asyncio
import threading
from pathlib import Path

import pytest

import tideq
from tests.api.running import environ, serving
from tests.stores import StoreUnderTest
from tideq import Worker, task, tq
from tideq.client import Client


async def test_a_worker_runs_what_is_registered_until_it_is_stopped(client: Client) -> None:
    @task
    def double(number: int) -> int:
        return number * 2

    def shout(payload: dict[str, str]) -> str:
        return payload["word"].upper()

    tq("shout").set_worker(shout)
    worker = Worker(concurrency=4, name="own", version="1.2")
    running = asyncio.create_task(worker.run())
    results = [
        await asyncio.to_thread(client.wait, each.task_id, 10)
        for each in (double.submit(21), tq("shout").add({"word": "tide"}))
    ]
    (listed,) = await asyncio.to_thread(lambda: list(client.workers.list("active")))
    worker.stop()
    await running

    assert [done.result for done in results] == [42, "TIDE"]
    assert (listed.name, listed.version, listed.capacity) == ("own", "1.2", 4)
    assert not await asyncio.to_thread(lambda: list(client.workers.list("active")))


async def test_stopping_lets_what_runs_finish(client: Client) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    @task
    async def slow() -> str:
        began.set()
        await may_end.wait()
        return "done"

    worker = Worker()
    running = asyncio.create_task(worker.run())
    submitted = await asyncio.to_thread(slow.submit)
    await began.wait()
    worker.stop()
    may_end.set()
    await running

    assert (await asyncio.to_thread(client.get, submitted.task_id)).result == "done"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_worker_that_is_cancelled_hands_back_at_once_and_leaves(client: Client, is_async: bool) -> None:
    loop, began, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    async def slow_async() -> None:
        began.set()
        await asyncio.Event().wait()

    def slow_thread() -> None:
        loop.call_soon_threadsafe(began.set)
        may_end.wait()

    slow = task(name="slow", timeout=3_600)(slow_async if is_async else slow_thread)
    running = asyncio.create_task(Worker().run())
    submitted = await asyncio.to_thread(slow.submit)
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    may_end.set()

    back = await asyncio.to_thread(client.get, submitted.task_id)
    assert (back.status, back.reason, back.retry_count, back.losses) == ("queued", "released", 0, 0)
    assert not await asyncio.to_thread(lambda: list(client.workers.list("active")))


async def test_a_worker_is_configured_by_arguments_or_the_environment_too(
    store: StoreUnderTest, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task
    def noop() -> None: ...

    folder = tmp_path / "other"
    folder.mkdir()
    with serving(environ(store.url, "another-one"), folder) as other, Client(other.url) as others:
        by_argument = Worker(other.url)
        monkeypatch.setenv("TIDEQ_URL", other.url)
        monkeypatch.setattr("tideq.application.connection._client", None)
        for worker in (by_argument, Worker()):
            running = asyncio.create_task(worker.run())
            waiting = await asyncio.to_thread(noop.on(others).submit)
            done = await asyncio.to_thread(others.wait, waiting.task_id, 10)
            worker.stop()
            await running
            assert done.status == "completed"

    assert not await asyncio.to_thread(lambda: list(client.workers.list()))


def test_a_worker_of_nothing_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match="no handler"):
        Worker()


def test_the_handle_of_a_worker_is_about_this_process(client: Client) -> None:
    @task
    def noop() -> None: ...

    handle = tideq.start()
    client.wait(noop.submit().task_id, 10)

    assert (handle.is_running(), handle.stats().running, handle.stats().is_paused) == (True, 0, False)
    handle.stop(10)
    assert not handle.is_running()
    assert not tq.is_running()
