"""Threads, jobs and child processes by themselves: all that begins ends once, and is told."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.workers.waiting import until
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.executor import Attempt, Executor
from tideq.workers.runtime.failures import Retry
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.process_pool import ProcessPool
from tideq.workers.runtime.report_buffer import ReportBuffer, Result
from tideq.workers.runtime.service_api import AssignedTask

MODULE = """
import os, time
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.registry import registered

def pid(seconds: float = 0) -> int:
    open(os.environ["BEGUN"], "a").close()
    time.sleep(seconds)
    return os.getpid()

registered.add(Handler("pid", pid, in_process=True))
"""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """There once a child has begun a task; the module that children import lies beside it."""
    (tmp_path / "computing_here.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
    return tmp_path / "begun"


class Told:
    def __init__(self) -> None:
        self.ended: list[tuple[Attempt, Result]] = []
        self.bursts = 0

    def __call__(self, ended: Sequence[tuple[Attempt, Result]]) -> None:
        self.ended += ended
        self.bursts += 1


@pytest.fixture
async def told() -> Told:
    return Told()


@pytest.fixture
async def execution(told: Told) -> AsyncIterator[Executor]:
    execution = Executor(4, ("computing_here",), told)
    yield execution
    execution.end()


def make_run(function: Callable[..., Any], *, in_process: bool = False, **parameters: Any) -> Attempt:
    task = AssignedTask("t1", "pid", msgspec.Raw(msgspec.json.encode(parameters)), 1, "l1", 60.0)
    mailbox = ReportBuffer("w1", lambda _: None)
    context = TaskContext("t1", "pid", 1, "l1", 60.0, mailbox)
    return Attempt(task, Handler("pid", function, in_process=in_process), context, mailbox)


def pid(seconds: float = 0) -> int: ...


def _is_there(path: Path) -> bool:
    return path.exists()


async def test_a_job_stopped_before_its_first_step_is_told_too(execution: Executor, told: Told) -> None:
    began = list[int]()

    async def job() -> None:
        began.append(1)

    run = make_run(job)
    execution.begin(run)
    run.stop()
    await until(lambda: told.ended)

    assert [(each, result.status) for each, result in told.ended] == [(run, "failed")]
    assert began == []


async def test_threads_are_as_many_as_slots_and_no_more(execution: Executor, told: Told) -> None:
    before = threading.active_count()

    for _ in range(500):
        execution.begin(make_run(lambda: None))
    await until(lambda: len(told.ended) == 500)

    assert threading.active_count() - before <= 4
    # Results come back in bursts, not one by one.
    assert told.bursts < 500


async def test_a_process_stopped_while_it_is_made_never_begins(execution: Executor, told: Told, begun: Path) -> None:
    run = make_run(pid, in_process=True)

    execution.begin(run)
    run.stop()
    await until(lambda: told.ended)

    assert told.ended[0][1].status == "failed"
    assert not _is_there(begun)


async def test_a_process_stopped_while_it_runs_is_told_and_the_next_has_another(
    execution: Executor, told: Told, begun: Path
) -> None:
    run = make_run(pid, in_process=True, seconds=600)

    execution.begin(run)
    await until(begun.exists)
    run.stop()
    await until(lambda: told.ended)
    execution.begin(make_run(pid, in_process=True))
    await until(lambda: len(told.ended) == 2)

    assert [result.status for _, result in told.ended] == ["failed", "completed"]


def test_a_stop_that_comes_late_does_not_kill_a_process_that_does_another_task(begun: Path) -> None:
    async def main() -> tuple[str, bytes]:
        children, run = ProcessPool(("computing_here",)), make_run(pid, in_process=True)
        with children.borrowed() as child:
            with run.using(child):
                child.run("pid", b"{}")
            run.stop()
            answer = child.run("pid", b"{}")
        children.end()
        return answer

    status, _ = asyncio.run(main())

    assert status == "completed"


def test_a_module_a_child_cannot_import_fails_its_tasks_and_shows_where(begun: Path) -> None:
    begun.with_name("computing_here.py").write_text("raise OSError('no such device')")
    children = ProcessPool(("computing_here",))

    with children.borrowed() as child:
        status, document = child.run("pid", b"{}")
    children.end()

    error = msgspec.json.decode(document)
    assert (status, error["message"]) == ("failed", "no such device")
    assert "computing_here.py" in error["details"]["traceback"]


def test_no_child_is_left_when_all_is_over(begun: Path) -> None:
    children = ProcessPool(("computing_here",))
    with children.borrowed() as child, children.borrowed() as other:
        child.run("pid", b"{}")
        children.end()
        with pytest.raises(Retry):
            other.run("pid", b"{}")

    assert child.is_spent
    assert other.is_spent


def test_a_thread_that_ends_after_the_loop_says_nothing() -> None:
    may_end, complaints, others = threading.Event(), list[Any](), threading.enumerate()
    before, threading.excepthook = threading.excepthook, complaints.append

    async def main() -> Executor:
        execution = Executor(1, (), Told())
        execution.begin(make_run(lambda: may_end.wait(10)))
        return execution

    try:
        execution = asyncio.run(main())
        execution.end()
        may_end.set()
        for thread in (thread for thread in threading.enumerate() if thread not in others):
            thread.join(10)
    finally:
        threading.excepthook = before

    assert complaints == []
