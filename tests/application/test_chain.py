"""The chainable form goes on after every call, and `tq` itself means the queue."""

import asyncio
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import msgspec
import pytest

import tideq
from tests.application import computing
from tideq import TaskContext, tq
from tideq.client import Client, Submitted
from tideq.client.models.tasks import TaskOptions

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


LEAVES_AT_ONCE = """
import asyncio, threading, time
from tideq import tq

begun = threading.Event()

def visit(page):
    begun.set()
    time.sleep(0.5)
    return page["url"]

async def main():
    tq("visit").set_worker(visit)
    tq.start()
    await asyncio.to_thread(begun.wait, 30)
    tq.stop()

asyncio.run(main())
"""


def crawl(page: dict[str, object]) -> object:
    return page["url"]


@pytest.fixture
def stopped() -> Iterator[None]:
    yield
    tq.stop(10)


class TestAdd:
    def test_gives_the_submitted_task_and_goes_on_as_a_chain(self, client: Client) -> None:
        first = tq("crawl").set_timeout(7).add({"url": "a"})
        third = first.add({"url": "b"}, priority="high").set_timeout(8).add({"url": "c"})

        assert isinstance(first, Submitted)
        tasks = {task.parameters["url"]: task for task in (client.get(first.task_id), client.get(third.task_id))}
        assert (tasks["a"].timeout_seconds, tasks["c"].timeout_seconds) == (7, 8)
        assert client.queue.stats().queue.by_priority == {"high": 1, "medium": 2, "low": 0}

    def test_what_it_gives_is_written_as_what_was_submitted(self, client: Client) -> None:
        added = tq("crawl").add({"url": "a"})
        plain = client.submit("crawl", {"url": "b"})

        assert json.loads(msgspec.json.encode(added)).keys() == json.loads(msgspec.json.encode(plain)).keys()
        assert "chain" not in repr(added)

    def test_takes_options_by_name_or_as_one_mapping(self, client: Client) -> None:
        run_at = datetime(2035, 12, 31, tzinfo=UTC)
        by_name = tq("mail").add({"to": "ann"}, max_retries=9, run_at=run_at)
        options: TaskOptions = {"max_retries": 9, "run_at": run_at}
        as_one = tq("mail").add({"to": "ann"}, options)
        (among_many,) = tq("mail").add_many([{"to": "eve"}], {"max_retries": 9, "run_at": run_at})

        tasks = [client.get(each.task_id) for each in (by_name, as_one, among_many)]
        assert [(task.max_retries, task.run_at) for task in tasks] == [(9, run_at)] * 3

    def test_refuses_both_at_once_and_what_it_does_not_know(self, client: Client) -> None:
        with pytest.raises(TypeError, match="not both"):
            tq("mail").add({}, {"max_retries": 1}, priority="high")
        for option, meant in (("maxAttempts", "max_retries"), ("runAfter", "run_at"), ("priorty", "priority")):
            with pytest.raises(TypeError, match=f"no option '{option}'; did you mean '{meant}'"):
                tq("mail").add({}, {option: 1})  # pyright: ignore[reportArgumentType]
        assert client.queue.stats().queue.total_depth == 0


class TestTheQueue:
    def test_is_what_pause_resume_and_stats_mean(self, client: Client) -> None:
        tq("crawl").add({"url": "a"})

        tq.pause("crawl", reason="the web is down")
        tq.pause()

        assert {limit.task_type: limit.reason for limit in client.queue.limits() if limit.paused} == {
            "crawl": "the web is down",
            None: "",
        }
        assert tq.stats().queue.by_type == {"crawl": 1}
        tq.resume()
        tq.resume("crawl")
        assert not [limit for limit in client.queue.limits() if limit.paused]

    def test_is_found_by_init(self, client: Client) -> None:
        url = client.transport.connection.url

        assert tq.init(url).transport.connection.url == url
        assert tq.stats().queue.total_depth == 0


class TestWork:
    def test_begins_with_start_and_ends_with_stop(self, client: Client, stopped: None) -> None:
        tq("crawl").set_worker(crawl)
        waiting = tq("crawl").add({"url": "a"})
        before = (tq.is_running(), client.wait(waiting.task_id, 0.3).status)

        tq.start()
        done = client.wait(waiting.task_id, 10)

        assert before == (False, "queued")
        assert (done.result, tq.is_running()) == ("a", True)
        tq.stop(10)
        assert not tq.is_running()
        tq.stop()

    def test_that_nobody_can_do_is_refused_at_once(self, client: Client) -> None:
        with pytest.raises(TypeError, match="no handler"):
            tq.start()
        assert not tq.is_running()

    def test_is_begun_once(self, client: Client, stopped: None) -> None:
        tq("crawl").set_worker(crawl)
        tq.start()
        client.wait(tq("crawl").add({"url": "a"}).task_id, 10)

        with pytest.raises(RuntimeError, match="already"):
            tideq.start()

    def test_of_a_handler_in_a_process_of_its_own_is_done(self, client: Client, stopped: None) -> None:
        importlib.reload(computing)

        tq.start(concurrency=1)

        assert client.wait(computing.add.submit(a=20, b=22).task_id, 60).result == 42

    def test_is_done_in_a_batch_once_in_this_process(self, client: Client) -> None:
        ran: list[str] = []

        def visit(page: dict[str, str], ctx: TaskContext) -> str:
            ctx.progress(50, "half-way")
            ctx.extend(60)
            ran.append(page["url"])
            if page["url"] == "bad":
                raise ValueError("no such page")
            return threading.current_thread().name

        tq("visit").set_worker(visit)
        added = [tq("visit").add({"url": url}) for url in ("a", "bad", "b")]

        assert (tq.process_batch(), tq.process_batch()) == (3, 0)
        assert ran == ["a", "bad", "b"]
        done, failed, _ = [client.get(each.task_id) for each in added]
        assert (done.result, done.progress and done.progress.percent) == (threading.current_thread().name, 50)
        assert (failed.status, failed.retry_count, failed.error and failed.error.message) == (
            "queued",
            1,
            "no such page",
        )
        assert not list(client.workers.list("active"))

    def test_is_done_in_batches_of_a_size(self, client: Client) -> None:
        tq("crawl").set_worker(crawl)
        tq("crawl").add_many({"url": n} for n in range(5))

        assert [tq.process_batch(2), tq.process_batch(), tq.process_batch()] == [2, 3, 0]

    async def test_of_async_handlers_is_done_in_a_batch_inside_a_loop_too(self, client: Client) -> None:
        async def visit(page: dict[str, str]) -> str:
            return page["url"]

        tq("visit").set_worker(visit)
        added = tq("visit").add({"url": "a"})

        assert tq.process_batch() == 1
        assert client.get(added.task_id).result == "a"

    def test_of_a_batch_has_the_trace_that_the_task_came_with(self, client: Client) -> None:
        given: list[TaskContext] = []

        def visit(page: dict[str, str], ctx: TaskContext) -> None:
            given.append(ctx)

        tq("visit").set_worker(visit)
        tasks = f"{client.transport.connection.url}/api/v1/tasks"
        came = httpx.post(tasks, json={"task_type": "visit"}, headers={"traceparent": f"00-{TRACE_ID}-{'1' * 16}-01"})
        own = tq("visit").add({"url": "a"})

        tq.process_batch()

        traced, untraced = sorted(given, key=lambda each: each.task_id)
        assert (traced.task_id, traced.trace_id) == (came.json()["task_id"], TRACE_ID)
        assert (traced.traceparent or "").startswith(f"00-{TRACE_ID}-")
        assert (untraced.traceparent, untraced.trace_id) == (None, own.task_id.replace("-", ""))

    def test_called_off_while_its_batch_runs_is_left_alone(self, client: Client) -> None:
        def cancel_itself(payload: dict[str, str], ctx: TaskContext) -> None:
            client.cancel(ctx.task_id)

        tq("quits").set_worker(cancel_itself)
        added = tq("quits").add({})

        assert tq.process_batch() == 1
        assert client.get(added.task_id).status == "cancelled"


class TestStop:
    """It is awaited in the documents: `await tq.stop()`."""

    async def test_is_awaited_without_keeping_the_loop_from_anything_else(self, client: Client) -> None:
        begun, may_end, finished = threading.Event(), threading.Event(), list[bool]()

        def visit(page: dict[str, str]) -> str:
            begun.set()
            may_end.wait(60)
            return page["url"]

        tq("visit").set_worker(visit)
        added = tq("visit").add({"url": "a"})
        tq.start()
        await asyncio.to_thread(begun.wait, 60)

        async def stop() -> None:
            await tq.stop()
            finished.append(True)

        stopping = asyncio.create_task(stop())
        await asyncio.sleep(0)
        assert (stopping.done(), finished) == (False, [])
        may_end.set()
        await stopping

        assert client.get(added.task_id).result == "a"
        assert not tq.is_running()
        assert not list(client.workers.list("active"))

    def test_has_ended_by_the_time_a_plain_call_returns_and_can_be_awaited_all_the_same(self, client: Client) -> None:
        tq("crawl").set_worker(crawl)
        handle = tq.start()

        stopped = tq.stop()

        assert not handle.is_running()
        assert not list(client.workers.list("active"))
        for each in (stopped, tq.stop(), handle.stop()):
            with pytest.raises(StopIteration):
                next(iter(each.__await__()))

    def test_that_nobody_waits_for_is_waited_for_by_the_process(self, client: Client) -> None:
        """A plain call at the end of an asynchronous program: what runs is finished, and its result delivered."""
        added = tq("visit").add({"url": "a"})
        settings = {**os.environ, "TIDEQ_URL": client.transport.connection.url}

        done = subprocess.run(
            [sys.executable, "-c", LEAVES_AT_ONCE],
            env=settings,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        assert client.get(added.task_id).result == "a"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("setWorker", "set_worker"), ("setRateLimit", "set_rate_limit"), ("addd", "add"), ("setTimeout", "set_timeout")],
)
def test_a_chains_unknown_method_names_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        getattr(tq("crawl"), name)


@pytest.mark.parametrize(("name", "meant"), [("processBatch", "process_batch"), ("isRunning", "is_running")])
def test_an_unknown_method_of_tq_names_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        getattr(tq, name)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pause", r"tq\.pause\(\) is about the whole queue; .* handle\.pause\(\)"),
        ("resume", r"tq\.resume\(\)"),
        ("stats", r"tq\.stats\(\) .* tq\.start\(\)"),
        ("submit_task", r"@task .* submit"),
        ("get_task", r"Client\(\)\.get"),
        ("list_tasks", r"Client\(\)\.list\(status=…, task_type=…\)"),
        ("Config", r"tideq\.init"),
        ("TaskWorker", r"tideq\.Worker"),
    ],
)
def test_names_of_other_libraries_are_refused_with_the_right_one(name: str, told: str) -> None:
    with pytest.raises(AttributeError, match=told):
        getattr(tideq, name)
    with pytest.raises(ImportError, match=told):
        exec(f"from tideq import {name}", {})  # noqa: S102
    assert not hasattr(tideq, name)


def test_a_misspelt_name_names_the_near_one() -> None:
    with pytest.raises(AttributeError, match="did you mean 'TaskContext'"):
        _ = tideq.TaskContex  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
