"""The service or its store goes away while handlers run: they finish, and every result is delivered afterwards.

Half a minute away with ninety seconds until a worker is given up is scaled down to a few with twenty.
"""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.bench import Bench
from tests.api.proxy import Proxy
from tests.api.running import Running, serving
from tests.kit import Kit
from tests.races.outbox import audit
from tests.stores import StoreUnderTest, free_port
from tests.workers.conftest import Site
from tests.workers.waiting import all_ended, ended, live_count, submitted, until
from tests.workers.workshop import Hand, Workshop

RUNNING = 8


@pytest.fixture
def site(own_site: Site) -> Site:
    return Site({**own_site.settings, "TIDEQ_HEARTBEAT_TIMEOUT_SECONDS": "20"}, own_site.folder)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def service(site: Site, port: int) -> Iterator[Running]:
    with serving(site.settings, site.folder, port) as running:
        yield running


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}"


async def test_results_finished_while_the_service_is_down_are_delivered_once_it_is_back(
    site: Site, service: Running, port: int, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand, may_end = shop.hire(service.url), shop.new_file()
    ids = await submitted(bench, [{"task_type": "until_file", "parameters": {"path": str(may_end)}}] * RUNNING)
    await until(lambda: shop.ledger.count("start") == RUNNING)

    service.process.kill()
    may_end.touch()
    await until(lambda: shop.ledger.count("end") == RUNNING)
    await until(lambda: len(hand.events("reports not delivered, trying again")) >= 3)
    with serving(site.settings, site.folder, port):
        tasks = await all_ended(bench, ids)
        after = await ended(bench, await bench.submit("short"))
        stories = await audit(kit)

    assert {(task["status"], task["attempt"], task["losses"]) for task in tasks} == {("completed", 1, 0)}
    assert {task["result"] for task in tasks} == {f"{hand.pid}-1"}
    assert Counter(event.reason for story in stories.values() for event in story)["succeeded"] == RUNNING + 1
    assert after["status"] == "completed"


async def test_a_service_killed_again_and_again_costs_no_task_anything(
    site: Site, port: int, shop: Workshop, client: object
) -> None:
    async with httpx.AsyncClient(base_url=url_of(port), timeout=40) as http:
        bench, hand = Bench(http), shop.hire(url_of(port))
        ids = await _through_deaths(site, port, bench, shop)
        with serving(site.settings, site.folder, port):
            await until(lambda: _is_all_done(bench))
            tasks = await all_ended(bench, ids)

    assert hand.process.poll() is None
    assert {(task["status"], task["attempt"], task["losses"]) for task in tasks} == {("completed", 1, 0)}
    assert shop.ledger.attempts("start") == {(task_id, 1): 1 for task_id in ids}


async def _through_deaths(site: Site, port: int, bench: Bench, shop: Workshop) -> list[str]:
    ids: list[str] = []
    for round_number in range(3):
        with serving(site.settings, site.folder, port):
            if not ids:
                ids = await submitted(bench, [{"task_type": "short", "parameters": {"seconds": 0.02}}] * 300)
            await until(lambda at=(round_number + 1) * 60: shop.ledger.count("start") >= at)
    return ids


async def _is_all_done(bench: Bench) -> bool:
    return await live_count(bench) == 0


async def test_a_worker_started_before_its_service_waits_for_it(
    site: Site, port: int, shop: Workshop, client: object
) -> None:
    hand = shop.hire(url_of(port))
    await until(lambda: hand.events("cannot claim, trying again"))

    with serving(site.settings, site.folder, port):
        async with httpx.AsyncClient(base_url=url_of(port), timeout=40) as http:
            task = await ended(Bench(http), await Bench(http).submit("short"))

    assert (task["status"], task["attempt"]) == ("completed", 1)


async def test_a_signal_while_the_service_is_down_waits_for_the_results_to_be_delivered(
    site: Site, service: Running, port: int, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand, task_id = await _finished_while_down(service, bench, shop)

    hand.signal(signal.SIGTERM)
    await until(lambda: hand.events("draining"))
    is_waiting = hand.process.poll() is None
    with serving(site.settings, site.folder, port):
        task = await ended(bench, task_id)
        status = hand.ended()

    assert is_waiting
    assert (task["status"], task["attempt"], status) == ("completed", 1, 0)


async def test_a_second_signal_while_the_service_is_down_ends_it_and_says_what_is_lost(
    service: Running, bench: Bench, shop: Workshop
) -> None:
    hand, _ = await _finished_while_down(service, bench, shop)

    hand.signal(signal.SIGTERM)
    await until(lambda: hand.events("draining"))
    hand.signal(signal.SIGTERM)
    status = hand.ended()

    assert status == 1
    (line,) = hand.events("reports undelivered: held tasks come back by themselves")
    assert line["unsent"] == 1


async def _finished_while_down(service: Running, bench: Bench, shop: Workshop) -> tuple[Hand, str]:
    """A worker whose only result nobody takes."""
    hand, may_end = shop.hire(service.url), shop.new_file()
    task_id = await bench.submit("until_file", parameters={"path": str(may_end)})
    await until(lambda: shop.ledger.count("start"))
    service.process.kill()
    may_end.touch()
    await until(lambda: hand.events("reports not delivered, trying again"))
    return hand, task_id


class StoreGate:
    """What stands between the service and its store, and can be shut."""

    def __init__(self, url: str) -> None:
        self._proxy = Proxy(url)
        self.port = free_port()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._proxy.accept, "127.0.0.1", self.port)

    async def shut(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._proxy.close()


@contextlib.asynccontextmanager
async def store_gate(store: StoreUnderTest) -> AsyncGenerator[StoreGate]:
    parts = urlsplit(store.url)
    gate = StoreGate(f"unix://{parts.path}" if parts.scheme == "unix" else store.url)
    await gate.open()
    try:
        yield gate
    finally:
        await gate.shut()


async def test_results_finished_while_the_store_is_away_are_delivered_once_it_is_back(
    store: StoreUnderTest, site: Site, port: int, shop: Workshop
) -> None:
    may_end = shop.new_file()
    async with store_gate(store) as gate:
        settings = {**site.settings, "REDIS_URL": f"redis://127.0.0.1:{gate.port}"}
        service = await asyncio.to_thread(serving(settings, site.folder, port).__enter__)
        try:
            async with httpx.AsyncClient(base_url=url_of(port), timeout=40) as http:
                bench, hand = Bench(http), shop.hire(url_of(port))
                tasks = [{"task_type": "until_file", "parameters": {"path": str(may_end)}}] * RUNNING
                ids = await submitted(bench, tasks)
                await until(lambda: shop.ledger.count("start") == RUNNING)

                await gate.shut()
                may_end.touch()
                await until(lambda: shop.ledger.count("end") == RUNNING)
                await until(lambda: len(hand.events("reports not delivered, trying again")) >= 2)
                await gate.open()
                ended_tasks = await all_ended(bench, ids)
        finally:
            service.process.kill()
            service.process.wait()

    assert {(task["status"], task["attempt"], task["losses"]) for task in ended_tasks} == {("completed", 1, 0)}
    assert hand.process.poll() is None
