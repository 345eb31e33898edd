"""The documents' own programs do what they say, against a real service."""

import itertools
import subprocess
import sys
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.api.running import environ
from tests.client.services import with_history
from tests.stores import StoreUnderTest
from tideq.client import Client

ROOT = Path(__file__).parents[2]
PROGRAMS = "tests.application.programs"


@pytest.fixture
def client(store: StoreUnderTest, database_url: str, tmp_path: Path) -> Iterator[Client]:
    """Of a service with history, which lists are read from."""
    settings = environ(store.url, uuid.uuid4().hex[:12], DATABASE_URL=database_url)
    with with_history(settings, tmp_path) as url, Client(url) as client:
        yield client


@pytest.fixture
def settings(client: Client) -> dict[str, str]:
    """Where the service is: all that the programs are not told in their text."""
    return {**environ("", ""), "TIDEQ_URL": client.transport.connection.url}


class Web(NamedTuple):
    url: str
    asked: list[str]


@pytest.fixture
def web() -> Iterator[Web]:
    """One of our own, and the pages it was asked for."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Web(f"http://127.0.0.1:{server.server_port}", asked)
        server.shutdown()
        thread.join()


class Program:
    def __init__(self, name: str, settings: dict[str, str]) -> None:
        command = [sys.executable, "-m", f"{PROGRAMS}.{name}"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, env=settings, stdin=pipe, stdout=pipe, text=True)

    def said(self, count: int) -> list[str]:
        """So many lines, sorted: workers say them in any order."""
        return sorted(itertools.islice(self._lines(), count))

    def end(self) -> tuple[int, list[str]]:
        """Lets it go on to its end: how it ended, and what else it said."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        rest = list(self._lines())
        return self.process.wait(), rest

    def _lines(self) -> Iterator[str]:
        """Without the worker's log, which begins with the time."""
        assert self.process.stdout is not None
        return (line.strip() for line in self.process.stdout if not line[:4].isdecimal())


@contextmanager
def running(name: str, settings: dict[str, str]) -> Generator[Program]:
    program = Program(name, settings)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.wait()
        for pipe in (program.process.stdin, program.process.stdout):
            assert pipe is not None
            pipe.close()


def test_crawl_and_mail(client: Client, settings: dict[str, str], web: Web) -> None:
    with running("crawl_and_mail", {**settings, "WEB": web.url}) as program:
        said = program.said(7)
        ended = program.end()

    pages = ["/1", "/2", "/3", "/baidu", "/google"]
    assert said == [*(f"Crawling {web.url}{page}" for page in pages), "Mailing user@example.com", "Waiting True"]
    assert sorted(web.asked) == pages
    assert ended == (0, [])
    assert client.queue.stats().queue.total_depth == 0


def test_email_handler(client: Client, settings: dict[str, str]) -> None:
    with running("email_handler", settings) as program:
        said = program.said(1)
        status, rest = program.end()

    (task,) = client.list(task_type="email")
    assert said == ["Mailing ann@example.com Hello: high tide"]
    assert (status, rest) == (0, ["Stopped"])
    assert client.get(task.task_id).result == {"message_id": "abc123"}
    assert not list(client.workers.list("active"))


def test_typed_payloads(client: Client, settings: dict[str, str]) -> None:
    with running("typed_payloads", settings) as program:
        said = program.said(3)
        ended = program.end()

    assert said == [f"Crawling HTTPS://EXAMPLE.COM{path}" for path in ("", "/1", "/2")]
    assert ended == (0, [])


def test_mail_and_images(client: Client, settings: dict[str, str]) -> None:
    with running("mail_and_images", settings) as program:
        said = program.said(2)
        ended = program.end()

    assert said == ["Mailing user@example.com", "Processing /uploads/photo.jpg"]
    assert ended == (0, ["Waiting {'send_email': 1}"])


def test_resize_and_its_worker(client: Client, settings: dict[str, str]) -> None:
    with running("resize", settings) as application:
        status, said = application.end()
    with running("resize_worker", settings) as worker:
        done = {task.task_type: client.wait(task.task_id, 30) for task in client.list()}
        worker.process.terminate()
        ended = worker.process.wait(30)

    assert (status, said) == (
        0,
        ["Submitted queued", "Waiting resize send_email", "Registered send_email send_email resize resize"],
    )
    assert done["send_email"].result == "sent to ann@example.org"
    assert done["resize"].result == {"url": "a.png", "width": 640}
    assert (done["resize"].max_retries, done["resize"].timeout_seconds) == (5, 30)
    assert ended == 0
    assert not list(client.workers.list("active"))


def test_speech(client: Client, settings: dict[str, str]) -> None:
    with running("speech", settings) as program:
        status, said = program.end()

    assert status == 0
    assert said == [
        "dequeued sentence 0 sentence 1 sentence 2 sentence 3 sentence 4",
        "again sentence 1 after 1",
        "went queued",
        "again sentence 1 after 2",
        "went dead_letter",
        "left sentence 5 sentence 6 sentence 2",
    ]
