"""The service or its store goes away while handlers run: they finish, and every result is delivered afterwards.

No worker may be given up meanwhile: a service takes seconds to come back, and many more where the machine is busy.
"""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
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
from tests.workers.workshop import Workshop

RUNNING = 8


@pytest.fixture
def site(own_site: Site) -> Site:
    return Site({**own_site.settings, "TIDEQ_HEARTBEAT_TIMEOUT_SECONDS": "240"}, own_site.folder)


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
    await until(lambda: len(hand.events("report delivery failed, retrying")) >= 3)
    with serving(site.settings, site.folder, port):
        tasks = await all_ended(bench, ids)
        after = await ended(bench, await bench.submit("short"))
        stories = await audit(kit)

    assert {(task["status"], task["attempt"], task["losses"]) for task in tasks} == {("completed", 1, 0)}
    assert {task["result"] for task in tasks} == {f"{hand.pid}-1"}
    assert Counter(event.reason for story in stories.values() for event in story)["succeeded"] == RUNNING + 1
    assert after["status"] == "completed"


async def test_a_worker_waits_for_its_service_and_its_deaths_cost_no_task_anything(
    site: Site, port: int, shop: Workshop
) -> None:
    hand = shop.hire(url_of(port))
    await until(lambda: hand.events("claim failed, retrying"))

    async with httpx.AsyncClient(base_url=url_of(port), timeout=40) as http:
        bench = Bench(http)
        ids = await _through_deaths(site, port, bench, shop)
        with serving(site.settings, site.folder, port):
            await until(lambda: _is_all_done(bench))
            tasks = await all_ended(bench, ids)

    assert hand.process.poll() is None
    assert {(task["status"], task["attempt"], task["losses"]) for task in tasks} == {("completed", 1, 0)}
    assert shop.ledger.attempts("start") == {(task_id, 1): 1 for task_id in ids}


async def _through_deaths(site: Site, port: int, bench: Bench, shop: Workshop) -> list[str]:
    ids: list[str] = []
    for round_number in range(2):
        with serving(site.settings, site.folder, port):
            if not ids:
                ids = await submitted(bench, [{"task_type": "short", "parameters": {"seconds": 0.02}}] * 300)
            await until(lambda at=(round_number + 1) * 80: shop.ledger.count("start") >= at)
    return ids


async def _is_all_done(bench: Bench) -> bool:
    return await live_count(bench) == 0


async def test_a_signal_while_the_service_is_down_waits_for_it_and_a_second_one_does_not(
    site: Site, service: Running, port: int, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    patient, hurried, may_end = shop.hire(service.url), shop.hire(service.url), shop.new_file()
    for pids in ({patient.pid}, {patient.pid, hurried.pid}):
        await _occupy(bench, shop, may_end, pids)
    service.process.kill()
    may_end.touch()
    for hand in (patient, hurried):
        await until(lambda hand=hand: hand.events("report delivery failed, retrying"))

    for hand in (patient, hurried):
        hand.signal(signal.SIGTERM)
        await until(lambda hand=hand: hand.events("drain started"))
    are_waiting = [hand.process.poll() is None for hand in (patient, hurried)]
    hurried.signal(signal.SIGTERM)
    statuses = [hurried.ended()]
    with serving(site.settings, site.folder, port):
        statuses.append(patient.ended())
        tasks = [await bench.read(line["task_id"]) for line in shop.ledger.lines("end", pid=patient.pid)]

    assert are_waiting == [True, True]
    assert statuses == [1, 0]
    (line,) = hurried.events("report delivery timed out; held tasks return when the heartbeat times out")
    assert line["unsent"] == shop.ledger.count("end", pid=hurried.pid)
    assert {(task["status"], task["attempt"]) for task in tasks} == {("completed", 1)}


async def _occupy(bench: Bench, shop: Workshop, may_end: Path, pids: set[int]) -> None:
    """Tasks that run until told, until each of these workers has one."""

    def busy() -> set[int]:
        return {line["pid"] for line in shop.ledger.lines("start")}

    while not pids <= busy():
        before = shop.ledger.count("start")
        await bench.submit("until_file", parameters={"path": str(may_end)})
        await until(lambda before=before: shop.ledger.count("start") > before)


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
        with contextlib.ExitStack() as running:
            # In a thread: the gate in this loop has to let it through.
            await asyncio.to_thread(running.enter_context, serving(settings, site.folder, port))
            async with httpx.AsyncClient(base_url=url_of(port), timeout=40) as http:
                bench, hand = Bench(http), shop.hire(url_of(port))
                tasks = [{"task_type": "until_file", "parameters": {"path": str(may_end)}}] * RUNNING
                ids = await submitted(bench, tasks)
                await until(lambda: shop.ledger.count("start") == RUNNING)

                await gate.shut()
                may_end.touch()
                await until(lambda: shop.ledger.count("end") == RUNNING)
                await until(lambda: len(hand.events("report delivery failed, retrying")) >= 2)
                await gate.open()
                ended_tasks = await all_ended(bench, ids)

    assert {(task["status"], task["attempt"], task["losses"]) for task in ended_tasks} == {("completed", 1, 0)}
    assert hand.process.poll() is None
