"""A real service for the whole suite, and the examples run beside it as their README says."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.api.running import environ, serving
from tests.stores import StoreUnderTest
from tideq.client import Client

EXAMPLES = Path(__file__).parents[2] / "examples"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def url(running_stores: Callable[[str], StoreUnderTest], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = environ(running_stores("valkey").url, uuid.uuid4().hex[:12])
    with serving({**settings, "DATABASE_URL": ""}, tmp_path_factory.mktemp("service")) as running:
        yield running.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def surroundings(url: str) -> dict[str, str]:
    """As a reader has them: tideq on the path, and where the service is."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**inherited, "PATH": path, "TIDEQ_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def run(surroundings: dict[str, str]) -> Run:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=EXAMPLES, env=surroundings, capture_output=True, text=True, timeout=240, check=False
        )

    return run


@contextmanager
def beside(surroundings: dict[str, str], *command: str) -> Generator[subprocess.Popen[str]]:
    """Runs while the test does; killed at the end if it still does then."""
    process = subprocess.Popen(command, cwd=EXAMPLES, env=surroundings, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
