"""Two services on one queue, restarted in turn under load: nothing is lost, and nothing fails but with a 503."""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bench import until
from tests.api.running import Running, serving
from tests.api.traffic import Traffic
from tests.kit import make_kit
from tests.races.outbox import audit
from tests.stores import free_port
from tideq.queue_core.background import background_task

RESTARTS = 4
KEEPERS = 4
CARRIED_BETWEEN = 50


class Site:
    """Services on fixed ports, each of which can be ended and started again."""

    def __init__(self, settings: dict[str, str], folder: Path, ports: list[int]) -> None:
        self._settings = settings
        self._folder = folder
        self._open = ExitStack()
        with ThreadPoolExecutor() as pool:
            self.services = dict(zip(ports, pool.map(self._start, ports), strict=True))
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


async def test_submitters_that_keep_their_connections_are_never_reset_by_a_restart(site: Site) -> None:
    urls, counts = [service.url for service in site.services.values()], [0] * KEEPERS

    async def keep_submitting(number: int) -> None:
        """As through a balancer that knows who leaves: told to close, the next connection is made elsewhere.

        So is one that was never made. Whatever else fails, fails the test.
        """
        for url in itertools.cycle(urls):
            with contextlib.suppress(httpx.ConnectError):
                async with httpx.AsyncClient(base_url=url, timeout=40) as http:
                    keeps = True
                    while keeps:
                        answer = await http.post("/api/v1/tasks", json={"task_type": "kept"})
                        counts[number] += answer.raise_for_status().is_success
                        keeps = answer.headers.get("connection") != "close"
                        await asyncio.sleep(0.005)

    async with contextlib.AsyncExitStack() as running_now:
        keepers = [
            await running_now.enter_async_context(background_task(keep_submitting(number))) for number in range(KEEPERS)
        ]
        for port in list(site.services):
            enough = [count + 20 for count in counts]
            await until(lambda enough=enough: _reached(counts, enough, keepers))
            assert await asyncio.to_thread(site.restart, port) == 0
        enough = [count + 20 for count in counts]
        await until(lambda: _reached(counts, enough, keepers))


async def _reached(counts: list[int], enough: list[int], keepers: list[asyncio.Task[None]]) -> bool:
    for keeper in keepers:
        if keeper.done():
            keeper.result()
    return all(count >= wanted for count, wanted in zip(counts, enough, strict=True))
