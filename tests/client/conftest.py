"""A real service with a history and a replicator, for the whole suite; each test has a task type of its own."""

import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from tests.api.bench import Bench
from tests.api.running import environ
from tests.client.both import FORMS, Form, client_of
from tests.client.faulty import FaultyProxy, faulty
from tests.client.services import with_history
from tests.stores import StoreUnderTest
from tideq.client import AsyncClient, RetryPolicy


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_ours() -> Iterator[None]:
    """Whoever runs the tests may have a service of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TIDEQ_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def server_settings(running_stores: Callable[[str], StoreUnderTest], database_url: str) -> dict[str, str]:
    return environ(
        running_stores("valkey").url,
        uuid.uuid4().hex[:12],
        DATABASE_URL=database_url,
        TIDEQ_SEARCHABLE_PARAMETERS="sought:width",
    )


@pytest.fixture(scope="session")
def url(server_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with with_history(server_settings, tmp_path_factory.mktemp("service")) as url:
        yield url


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return request.param


@pytest.fixture
async def client(url: str, form: Form) -> AsyncIterator[AsyncClient]:
    """Once as it is, once as the blocking client it is made into."""
    async with client_of(form, url) as client:
        yield client


@pytest.fixture
async def workers(url: str) -> AsyncIterator[Bench]:
    """The other side: those who do the work."""
    async with httpx.AsyncClient(base_url=url, timeout=40) as http:
        yield Bench(http)


@pytest.fixture
def task_type() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
async def proxy(url: str) -> AsyncIterator[FaultyProxy]:
    async with faulty(url) as proxy:
        yield proxy


@pytest.fixture
async def hasty(proxy: FaultyProxy, form: Form) -> AsyncIterator[AsyncClient]:
    """Talks through the proxy, and has no time to lose."""
    async with client_of(form, proxy.url, retries=RetryPolicy(base_seconds=0.001, cap_seconds=0.01)) as client:
        yield client
