"""A bench for the machine, and the table of what fired at the end of the session."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.model.bench import Bench
from tests.stores import StoreUnderTest

REPORT = pytest.StashKey[list[str]]()


@pytest.fixture
def bench(running_stores: Callable[[str], StoreUnderTest]) -> Iterator[Bench]:
    with asyncio.Runner() as runner:
        client = running_stores("valkey").client()
        yield Bench(runner.get_loop(), client)
        runner.run(client.aclose())


@pytest.fixture
def report(request: pytest.FixtureRequest) -> list[str]:
    """Lines added here are printed at the end, captured or not."""
    return request.config.stash.setdefault(REPORT, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(REPORT, list[str]()):
        terminalreporter.write_line(line)
