"""What autoscalers ask: how much there is to do, at a cost that does not grow."""

import httpx

from tests.api.bench import Bench, assert_problem
from tests.kit import Kit

AUTOSCALE = "/api/v1/queue/autoscale"


async def test_an_idle_queue_has_no_backlog(bench: Bench) -> None:
    assert await bench.call("GET", AUTOSCALE) == {"ready": 0, "executing": 0, "backlog": 0}


async def test_the_backlog_is_what_is_ready_and_what_is_being_done(bench: Bench) -> None:
    worker_id = await bench.register()
    await bench.submit("resize")
    await bench.started(worker_id)
    await bench.submit("resize")
    await bench.claimed(worker_id)
    await bench.submit("crop", required_capabilities=["gpu"])
    await bench.submit("crop", delay_seconds=60)

    assert await bench.call("GET", AUTOSCALE) == {"ready": 1, "executing": 2, "backlog": 3}
    assert await bench.call("GET", f"{AUTOSCALE}?task_type=crop") == {"ready": 0, "executing": 0, "backlog": 0}
    assert (await bench.call("GET", f"{AUTOSCALE}?task_type=crop&capability=gpu"))["backlog"] == 1
    assert (await bench.call("GET", f"{AUTOSCALE}?task_type=crop&task_type=resize"))["backlog"] == 2


async def test_a_name_that_cannot_be_a_task_type_is_refused(http: httpx.AsyncClient) -> None:
    assert_problem(await http.get(AUTOSCALE, params={"task_type": "a,b"}), 400)


async def test_asking_costs_the_store_the_same_whatever_waits(bench: Bench, kit: Kit) -> None:
    """By the commands the script runs, which is what the store's time goes to."""

    async def cost() -> int:
        before = await _command_count(kit)
        await kit.insight.backlog()
        return await _command_count(kit) - before

    await bench.submit("resize")
    alone = await cost()
    for _ in range(50):
        await bench.submit("resize")

    assert await cost() == alone


async def _command_count(kit: Kit) -> int:
    stats = await kit.client.info("commandstats")
    return sum(stats[name]["calls"] for name in ("cmdstat_zcount", "cmdstat_hmget", "cmdstat_hgetall") if name in stats)
