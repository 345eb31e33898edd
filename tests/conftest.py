"""Fixtures every suite shares. A store is started once a session; a test gets a queue of its own on it."""

import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from tests.kit import Kit, make_kit
from tests.schedule import place
from tests.stores import STORES, StoreUnderTest, missing
from tideq.embedded import EmbeddedStores, PostgresOptions
from tideq.queue_core.settings import QueueSettings

# A shell that runs the suite in the background has it ignore Ctrl-C, and every command that a test starts would too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def running_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], StoreUnderTest]]:
    """Starts each kind of store when it is first asked for, and stops all at the end."""
    with ExitStack() as running:
        started: dict[str, StoreUnderTest] = {}

        def get(name: str) -> StoreUnderTest:
            if name not in started:
                if reason := missing(name):
                    pytest.skip(reason)
                started[name] = running.enter_context(STORES[name](tmp_path_factory.mktemp(name)))
            return started[name]

        yield get


@pytest.fixture
def store(request: pytest.FixtureRequest, running_stores: Callable[[str], StoreUnderTest]) -> StoreUnderTest:
    """Valkey, unless a suite asks for others by indirect parametrisation."""
    return running_stores(getattr(request, "param", "valkey"))


@pytest.fixture(scope="session")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL for the whole session; a queue of its own is a schema of its own."""
    postgres = PostgresOptions(flags=("-c", "fsync=off"))
    with EmbeddedStores(tmp_path_factory.mktemp("postgres"), valkey=None, postgres=postgres) as stores:
        yield stores.database_url


@pytest.fixture
def settings() -> QueueSettings:
    """Override in a module or class to test with other settings."""
    return QueueSettings()


@pytest.fixture
async def client(store: StoreUnderTest) -> AsyncIterator[Any]:
    client = store.client()
    yield client
    await client.aclose()


@pytest.fixture
async def kit(client: Any, store: StoreUnderTest, settings: QueueSettings) -> AsyncIterator[Kit]:
    """An engine on an empty queue of its own; afterwards its invariants must still hold."""
    if store.partition_count > 1:
        settings = msgspec.structs.replace(settings, partitions=(store.partition_count,))
    kit = await make_kit(client, uuid.uuid4().hex[:12], settings, sends_flags=store.sends_flags)
    yield kit
    await kit.assert_sound()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process lives in one zone, and its sessions with PostgreSQL in another."""
    monkeypatch.setenv("TZ", "America/St_Johns")
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only where files are shared out: by oneself, the order of the suites tells a story."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Seconds per suite, so that a slow one is seen before it hurts."""
    seconds: dict[str, float] = {}
    counts: Counter[str] = Counter()
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport):
            suite = report.nodeid.partition("/")[2].partition("/")[0]
            seconds[suite] = seconds.get(suite, 0.0) + report.duration
            counts[suite] += report.when == "call"
    if len(seconds) > 1:
        terminalreporter.section("seconds per suite")
        for suite, duration in sorted(seconds.items(), key=lambda item: -item[1]):
            terminalreporter.write_line(f"{duration:8.1f} s  {counts[suite]:5d} tests  {suite}")
