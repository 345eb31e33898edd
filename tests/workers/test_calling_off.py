"""What a handler is told while it runs, what it can say, and what becomes of one that does not listen."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator

import httpx
import pytest

from tests.api.bench import Bench, Json
from tests.api.running import Running
from tests.kit import Kit
from tests.workers.waiting import all_ended, done, ended, registrations, until
from tests.workers.workshop import Hand, Workshop, workshop

LONG, LONGER = 60.0, 90.0
HEARD = 2
"""The first may have been on its way before the handlers began."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with workshop(tmp_path_factory.mktemp("calling-off") / "shop") as shop:
        yield shop


@pytest.fixture(scope="module")
def hand(shared_service: Running, shop: Workshop) -> Hand:
    return shop.hire(shared_service.url, "--health-port", "0")


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


async def cancel(bench: Bench, task_id: str) -> None:
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}")


async def health_of(bench: Bench, hand: Hand) -> httpx.Response:
    worker = (await registrations(bench, hand))[0]
    async with httpx.AsyncClient() as http:
        return await http.get(f"http://{worker['host']}:{worker['health_port']}/health", timeout=10)


@pytest.mark.parametrize("task_type", ["attentive", "attentive_async"])
async def test_a_cancelled_task_tells_its_handler(
    bench: Bench, kit: Kit, hand: Hand, shop: Workshop, task_type: str
) -> None:
    task_id = await bench.submit(task_type)
    await until(lambda: shop.ledger.count("start", task_id=task_id))

    await cancel(bench, task_id)
    await until(lambda: shop.ledger.count("end", task_id=task_id))
    # What the handler then reports is refused; the next task shows that the worker took it in its stride.
    after = await done(bench, "add", {"a": 1})

    assert shop.ledger.lines("end", task_id=task_id)[0]["is_cancelled"]
    task = await bench.read(task_id)
    assert (task["status"], task["attempt"], task["error"], task["result"]) == ("cancelled", 1, None, None)
    assert after["status"] == "completed"


async def test_a_cancelled_process_is_killed_and_replaced(bench: Bench, kit: Kit, hand: Hand, shop: Workshop) -> None:
    task_id = await bench.submit("compute", parameters={"seconds": LONG})
    await until(lambda: shop.ledger.count("start", seconds=LONG))
    (started,) = shop.ledger.lines("start", seconds=LONG)

    await cancel(bench, task_id)
    await until(lambda: not is_alive(started["pid"]))
    after = await done(bench, "compute", {"seconds": 0})

    assert (await bench.read(task_id))["status"] == "cancelled"
    assert after["status"] == "completed"
    assert after["result"] not in (started["pid"], hand.pid)


async def test_a_task_run_again_by_the_same_worker_is_not_stopped_for_what_happened_before(
    bench: Bench, kit: Kit, hand: Hand, shop: Workshop
) -> None:
    """The service names a task it called off for five minutes, to whoever held it: also when that holds it anew."""
    task_id = await bench.submit("attentive", parameters={"seconds": 3})
    await until(lambda: shop.ledger.count("start", task_id=task_id))
    await cancel(bench, task_id)
    await until(lambda: shop.ledger.count("end", task_id=task_id))

    await bench.call("POST", f"/api/v1/tasks/{task_id}/retry", {})
    task = await ended(bench, task_id)

    assert [line["is_cancelled"] for line in shop.ledger.lines("end", task_id=task_id)] == [True, False]
    assert (task["status"], task["attempt"]) == ("completed", 2)


async def test_a_call_off_long_ago_does_not_make_the_worker_ask_without_end(
    bench: Bench, kit: Kit, hand: Hand, shop: Workshop
) -> None:
    task_id = await bench.submit("attentive")
    await until(lambda: shop.ledger.count("start", task_id=task_id))
    await cancel(bench, task_id)
    await until(lambda: shop.ledger.count("end", task_id=task_id))

    before = await claims(bench)
    await asyncio.sleep(2)

    assert await claims(bench) - before < 20


async def claims(bench: Bench) -> int:
    text = (await bench.http.get("/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("tideq_claim") and "_count" in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


async def test_the_latest_progress_is_shown_while_the_task_runs(
    bench: Bench, kit: Kit, hand: Hand, shop: Workshop
) -> None:
    may_end = shop.new_file()
    task_id = await bench.submit("report", parameters={"path": str(may_end)})

    async def is_told() -> bool:
        progress: Json | None = (await bench.read(task_id))["progress"]
        return progress is not None and progress["percent"] == 50

    await until(is_told)
    progress = (await bench.read(task_id))["progress"]
    may_end.touch()

    assert progress == {"percent": 50, "message": "step 1000"}
    assert (await ended(bench, task_id))["status"] == "completed"


async def test_an_extension_moves_the_deadline_and_nothing_else_does(
    bench: Bench, kit: Kit, hand: Hand, shop: Workshop
) -> None:
    extended, not_extended = await asyncio.gather(
        done(bench, "prolong", {"seconds": 2.5, "by": 30}, timeout_seconds=1, max_retries=0),
        done(bench, "short", {"seconds": 2.5}, timeout_seconds=1, max_retries=0),
    )

    assert (extended["status"], extended["attempt"]) == ("completed", 1)
    assert not shop.ledger.lines("end", task_id=extended["task_id"])[0]["is_cancelled"]
    assert (not_extended["status"], not_extended["error"]["code"]) == ("dead_letter", "TIMEOUT")


async def test_a_hung_handler_times_out_is_told_and_its_late_result_changes_nothing(
    bench: Bench, kit: Kit, hand: Hand, shop: Workshop
) -> None:
    may_end = shop.new_file()
    # No second attempt gets in the way.
    fields = {"timeout_seconds": 1, "max_retries": 1, "backoff": {"base_seconds": 600}}
    task_id = await bench.submit("until_file", parameters={"path": str(may_end)}, **fields)
    process = asyncio.create_task(done(bench, "compute", {"seconds": LONGER}, timeout_seconds=1, max_retries=0))

    async def is_stuck() -> bool:
        return (await health_of(bench, hand)).status_code == 503

    await until(lambda: shop.ledger.count("start", task_id=task_id))
    well = await health_of(bench, hand)
    await until(is_stuck)
    unwell, workers, timed_out = (
        await health_of(bench, hand),
        await registrations(bench, hand),
        await bench.read(task_id),
    )
    may_end.touch()
    await until(lambda: hand.events("report refused"))
    after = await health_of(bench, hand)

    assert (well.status_code, well.json()["checks"]["stuck_threads"]["ok"]) == (200, True)
    assert unwell.json()["checks"]["stuck_threads"] == {"ok": False, "value": 1, "limit": 0}
    assert [name for name, check in unwell.json()["checks"].items() if not check["ok"]] == ["stuck_threads"]
    # Six seconds and more, with a heartbeat timeout of five: it went on beating, under the same ids.
    assert {worker["status"] for worker in workers} == {"active"}
    assert (timed_out["status"], timed_out["retry_count"], timed_out["losses"]) == ("queued", 1, 0)
    assert timed_out["error"]["code"] == "TIMEOUT"
    assert shop.ledger.lines("end", task_id=task_id)[0]["is_cancelled"]
    assert (await bench.read(task_id))["version"] == timed_out["version"]
    assert after.status_code == 200
    # A process that hangs does not stay: it is killed at the deadline.
    assert (await process)["error"]["code"] == "TIMEOUT"
    (started,) = shop.ledger.lines("start", seconds=LONGER)
    assert not is_alive(started["pid"])
    await cancel(bench, task_id)


async def test_handlers_that_take_all_the_time_do_not_starve_heartbeats(
    bench: Bench, kit: Kit, hand: Hand, shop: Workshop
) -> None:
    """Threads that never rest and a handler that blocks the loop itself go on until heartbeats were heard: only these
    can have been, as the loop does nothing else meanwhile."""
    may_end = shop.new_file()
    ids: list[str] = []
    # One after the other: a loop that is blocked begins no other.
    for kind in ("hog", "hog", "hog", "block"):
        ids.append(task_id := await bench.submit(kind, parameters={"path": str(may_end)}))
        await until(lambda task_id=task_id: shop.ledger.count("start", task_id=task_id))

    for _ in range(HEARD):
        await until(await _beats_again(bench, hand))
    may_end.touch()
    tasks = await all_ended(bench, ids)

    assert {(task["status"], task["attempt"], task["losses"]) for task in tasks} == {("completed", 1, 0)}
    assert {worker["status"] for worker in await registrations(bench, hand)} == {"active"}


async def _beats_again(bench: Bench, hand: Hand) -> Callable[[], Awaitable[bool]]:
    """True once every crew of the worker was heard of later than it was by now."""

    async def heard() -> dict[str, str]:
        return {worker["worker_id"]: worker["last_heartbeat_at"] for worker in await registrations(bench, hand)}

    before = await heard()

    async def has_beaten() -> bool:
        now = await heard()
        return all(now[worker_id] > at for worker_id, at in before.items())

    return has_beaten
