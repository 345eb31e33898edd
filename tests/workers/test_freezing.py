"""Workers that stand still for longer than their leases, and what becomes of what they held when they wake."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.api.bench import Bench, Json
from tests.api.running import Running
from tests.kit import Kit
from tests.workers.conftest import HEARTBEAT_SECONDS, Site
from tests.workers.waiting import all_ended, ended, live_count, registrations, submitted, until
from tests.workers.workshop import Hand, Workshop


@pytest.fixture
def site(own_site: Site) -> Site:
    return own_site


@pytest.fixture
def service(own_service: Running) -> Running:
    """One that gives workers up soon."""
    return own_service


async def test_a_frozen_worker_is_done_without_and_its_late_result_changes_nothing(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    frozen, may_end = shop.hire(service.url), shop.new_file()
    task_id = await bench.submit("until_file", parameters={"path": str(may_end)})
    await until(lambda: shop.ledger.count("start", task_id=task_id, pid=frozen.pid))

    frozen.signal(signal.SIGSTOP)
    other = shop.hire(service.url)
    await until(lambda: shop.ledger.count("start", task_id=task_id, pid=other.pid))
    may_end.touch()
    done = await ended(bench, task_id)
    frozen.signal(signal.SIGCONT)
    await until(lambda: _is_refused(frozen, task_id))
    other.kill()
    after = await ended(bench, await bench.submit("short"))

    assert (done["status"], done["attempt"], done["losses"]) == ("completed", 2, 1)
    assert done["result"] == f"{other.pid}-2"
    assert shop.ledger.count("end", task_id=task_id, pid=frozen.pid) == 1
    assert _lasting(await bench.read(task_id)) == _lasting(done)
    # It works again, registered anew.
    assert after["result"].startswith(f"{frozen.pid}-")
    assert {worker["status"] for worker in await registrations(bench, frozen)} == {"dead", "active"}


def _lasting(task: Json) -> Json:
    return {name: value for name, value in task.items() if name != "current_state_duration_seconds"}


def _is_refused(hand: Hand, task_id: str) -> bool:
    return any(line["task_id"] == task_id for line in hand.events("report refused"))


async def test_a_worker_frozen_at_any_moment_never_begins_what_is_not_its_own(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hands = [shop.hire(service.url, "--concurrency", "8") for _ in range(2)]
    ids = await submitted(bench, [{"task_type": "short", "max_retries": 9}] * 300)

    for hand in hands:
        await until(lambda pid=hand.pid: shop.ledger.count("start", pid=pid) >= 20)
        hand.signal(signal.SIGSTOP)
        await asyncio.sleep(HEARTBEAT_SECONDS + 0.5)
        hand.signal(signal.SIGCONT)
    await until(lambda: _is_all_done(bench))

    tasks = await all_ended(bench, ids)
    assert {task["status"] for task in tasks} == {"completed"}
    assert set(shop.ledger.attempts("start").values()) == {1}
    finished = {(line["task_id"], f"{line['pid']}-{line['attempt']}") for line in shop.ledger.lines("end")}
    assert {(task["task_id"], task["result"]) for task in tasks} <= finished


async def _is_all_done(bench: Bench) -> bool:
    return await live_count(bench) == 0


async def test_no_child_process_outlives_a_killed_worker(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand = shop.hire(service.url)
    task_id = await bench.submit("compute", parameters={"seconds": 600})
    await until(lambda: shop.ledger.count("start"))
    (line,) = shop.ledger.lines("start")

    hand.kill()

    await until(lambda: not Path(f"/proc/{line['pid']}").exists())
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}")
