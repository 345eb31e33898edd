"""A service with its keys on and its history beside it, and what a campaign against it found: one serves all tests."""

import subprocess
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.api.running import TIDEQ, environ, serving, tideq
from tests.fuzz.campaign import run_campaign
from tests.fuzz.findings import Findings
from tests.stores import StoreUnderTest


@pytest.fixture(scope="session")
def findings(
    running_stores: Callable[[str], StoreUnderTest], database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Findings]:
    store, folder = running_stores("valkey"), tmp_path_factory.mktemp("fuzz")
    settings = environ(
        store.url,
        uuid.uuid4().hex[:12],
        DATABASE_URL=database_url,
        TIDEQ_AUTH="keys",
        # Names are made at random, and each new type is a new lane: those of a day are more than a client may open.
        TIDEQ_MAX_NEW_LANES_PER_DAY="2000",
    )
    _said(settings, "migrate")
    with serving(settings, folder) as running, _replicating(settings, folder):
        key = _said(settings, "keys", "create", "fuzz", "--role", "admin")
        _await_key(running.url, key)
        found = run_campaign(running.url, key)
        found.complaints = running.complaints()
        found.is_alive = running.process.poll() is None
        yield found


def _said(settings: dict[str, str], *command: str) -> str:
    ended = tideq(settings, *command)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def _await_key(url: str, key: str) -> None:
    """The service reads its keys anew every few seconds."""
    deadline = time.monotonic() + 20
    while httpx.get(f"{url}/api/v1/queue/stats", headers={"Authorization": f"Bearer {key}"}).status_code == 401:
        assert time.monotonic() < deadline, "the service does not know its key"
        time.sleep(0.1)


@contextmanager
def _replicating(settings: dict[str, str], folder: Path) -> Generator[None]:
    with (folder / "replicate.log").open("w") as said:
        process = subprocess.Popen([TIDEQ, "replicate"], env=settings, stdout=said, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.kill()
        process.wait()
