"""A worker that was set and never begins is said once, and only where nothing would ever run it."""

import asyncio
import importlib
import io
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tideq
from tests.api.running import TIDEQ
from tests.application import computing
from tideq import tq
from tideq.application import reminder
from tideq.client import Client
from tideq.testing import local_service
from tideq.workers.runtime.registry import has_started

PROGRAM = """
import sys
from tideq import tq

tq("crawl").set_worker(print)
tq("mail").set_worker(print)
sys.stdin.read()
"""
LOOKING = """
import sys
from tideq.workers.runtime.registry import has_started

sys.exit(7 if has_started.is_set() else 1)
"""


def crawl(page: dict[str, object]) -> None: ...


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What is said when a worker is set, in a process in which none has begun so far, and nobody has patience."""
    monkeypatch.setattr(reminder, "WAIT_SECONDS", 0)
    monkeypatch.setattr(reminder, "_once", threading.Lock())
    had_begun = has_started.is_set()
    has_started.clear()

    def warnings() -> list[str]:
        tq("crawl").set_worker(crawl)
        tq("mail").set_worker(crawl)
        for thread in threading.enumerate():
            if thread.name == "tideq-reminder":
                thread.join()
        return [record.message for record in caplog.records if record.levelno == logging.WARNING]

    yield warnings
    if had_begun:
        has_started.set()


def test_one_warning_says_what_to_call_after_five_seconds() -> None:
    """They are waited for by reading what is said; the program ends when it is let."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert isinstance(program.stderr, io.TextIOBase)
        first = program.stderr.readline()
        _, rest = program.communicate("")

    assert all(part in first for part in ("crawl", "tq.start()", "tideq worker --handlers"))
    assert (rest, program.returncode) == ("", 0)


def test_a_program_that_ends_before_says_nothing() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], input="", capture_output=True, text=True, check=True)

    assert ended.stderr == ""


def test_a_worker_that_is_set_and_not_begun_is_said_once(warnings: Callable[[], list[str]]) -> None:
    assert len(warnings()) == 1


def test_under_the_testing_service_nothing_is_said(warnings: Callable[[], list[str]]) -> None:
    with local_service():
        assert warnings() == []


def test_once_the_work_has_begun_nothing_is_said(client: Client, warnings: Callable[[], list[str]]) -> None:
    importlib.reload(computing)
    begun = tideq.start()

    told = client.wait(computing.will_not_be_reminded.submit().task_id, 60).result
    begun.stop(10)

    assert (told, warnings()) == (True, [])


def test_after_a_batch_nothing_is_said(client: Client, warnings: Callable[[], list[str]]) -> None:
    importlib.reload(computing)
    tq.process_batch()

    assert warnings() == []


def test_where_a_worker_is_awaited_nothing_is_said(client: Client, warnings: Callable[[], list[str]]) -> None:
    importlib.reload(computing)
    worker = tideq.Worker()
    worker.stop()
    asyncio.run(worker.run())

    assert warnings() == []


def test_modules_that_the_command_imports_are_not_reminded(tmp_path: Path) -> None:
    """However long their import takes: it is known before that a worker will begin."""
    (tmp_path / "looking.py").write_text(LOOKING)

    ended = subprocess.run([TIDEQ, "worker", "--handlers", "looking"], cwd=tmp_path, check=False)

    assert ended.returncode == 7
