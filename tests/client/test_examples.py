"""What the docstrings show is what happens, in both forms of the client."""

import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.running import environ
from tests.client.both import Form
from tests.client.examples import documented, run
from tests.client.services import with_history
from tests.stores import StoreUnderTest
from tideq.client import AsyncClient, Client
from tideq.client._async.pull import AsyncPullQueue
from tideq.client._async.queue import AsyncDlq, AsyncQueue, AsyncWorkers
from tideq.client._sync.pull import PullQueue
from tideq.client._sync.queue import Dlq, Queue, Workers

QUIET: dict[Form, tuple[type, ...]] = {"async": (AsyncQueue, AsyncDlq, AsyncWorkers), "sync": (Queue, Dlq, Workers)}
BUSY: dict[Form, tuple[type, ...]] = {"async": (AsyncClient, AsyncPullQueue), "sync": (Client, PullQueue)}


@pytest.fixture
def own_url(store: StoreUnderTest, database_url: str, tmp_path: Path) -> Iterator[str]:
    """A service nobody has used yet."""
    settings = environ(store.url, uuid.uuid4().hex[:12], DATABASE_URL=database_url)
    with with_history(settings, tmp_path) as url:
        yield url


def test_every_example_runs_and_shows_what_it_says(form: Form, own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEQ_URL", own_url)
    names: dict[str, Any] = {}

    count = run_all(form, QUIET[form], names)
    with resizing(own_url):
        count += run_all(form, BUSY[form], names)

    assert count >= 16


def run_all(form: Form, kinds: tuple[type, ...], names: dict[str, Any]) -> int:
    """Each begins with a client and with what earlier ones left."""
    found = [each for kind in kinds for each in documented(kind)]
    for each in found:
        run(each, names, AsyncClient() if form == "async" else Client())
    return len(found)


@contextmanager
def resizing(url: str) -> Generator[None]:
    """A worker for the examples' own task type."""
    is_over = threading.Event()
    worker = threading.Thread(target=_resize, args=(url, is_over))
    worker.start()
    try:
        yield
    finally:
        is_over.set()
        worker.join()


def _resize(url: str, is_over: threading.Event) -> None:
    with httpx.Client(base_url=f"{url}/internal/workers", timeout=20) as http:
        worker = http.post("/register", json={"task_types": ["resize"]}).json()["worker_id"]
        while not is_over.is_set():
            for task in http.post(f"/{worker}/poll", json={"wait_seconds": 0.2}).json()["tasks"]:
                held = {"task_id": task["task_id"], "lease": task["lease"]}
                result = {"width": task["parameters"]["width"]}
                http.post(f"/{worker}/start", json=held)
                http.post(f"/{worker}/result", json={**held, "status": "completed", "result": result})
