"""Two services on one queue, restarted in turn under load: nothing is lost, and nothing fails but with a 503."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.api.bench import until
from tests.api.running import Running, serving
from tests.api.traffic import Traffic
from tests.kit import make_kit
from tests.races.outbox import audit
from tests.stores import free_port

RESTARTS = 6
CARRIED_BETWEEN = 50


class Site:
    """Services on fixed ports, each of which can be ended and started again."""

    def __init__(self, settings: dict[str, str], folder: Path, ports: list[int]) -> None:
        self._settings = settings
        self._folder = folder
        self._open = ExitStack()
        self.services = {port: self._start(port) for port in ports}
        self.said: list[str] = []

    def restart(self, port: int) -> int:
        """The exit status it ended with."""
        service = self.services[port]
        service.process.terminate()
        status = service.process.wait(60)
        self.said.append(service.complaints())
        self.services[port] = self._start(port)
        return status

    def close(self) -> None:
        self._open.close()

    def _start(self, port: int) -> Running:
        return self._open.enter_context(serving(self._settings, self._folder, port))


@pytest.fixture
def site(server_settings: dict[str, str], tmp_path: Path) -> Iterator[Site]:
    site = Site(server_settings, tmp_path, [free_port(), free_port()])
    yield site
    site.close()


async def test_a_rolling_restart_under_load_loses_nothing(site: Site, client: Any, queue_name: str) -> None:
    kit = await make_kit(client, queue_name)
    statuses: list[int] = []

    async def restart_in_turn() -> None:
        ports = itertools.cycle(site.services)
        for _ in range(RESTARTS):
            statuses.append(await asyncio.to_thread(site.restart, next(ports)))
            enough = len(traffic.completed) + CARRIED_BETWEEN
            await until(lambda enough=enough: _have_completed(traffic, enough))

    async with Traffic([service.url for service in site.services.values()]) as traffic:
        await traffic.run(restart_in_turn())

    traffic.assert_nothing_lost()
    assert statuses == [0] * RESTARTS
    assert "".join(site.said) == ""
    assert len(traffic.acknowledged) > RESTARTS * CARRIED_BETWEEN
    stories = await audit(kit)
    assert set(stories) == set(traffic.acknowledged)


async def _have_completed(traffic: Traffic, count: int) -> bool:
    return len(traffic.completed) >= count
