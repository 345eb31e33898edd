"""One odd value in what many share is left out by itself: looking, sweeping and working go on.

Values are put there behind the engine's back, as a later version, or damage, could have left them.
"""

import pytest

from tests.kit import Kit
from tideq.queue_core.controls import Pause
from tideq.queue_core.outbox.stream import BEGINNING, OutboxStream
from tideq.queue_core.polls.ready_lanes import ReadyLanes
from tideq.queue_core.queue_picture import QueuePictures
from tideq.queue_core.task import WorkerDeclaration

ODD = {
    "ages": {"normal:eight": "1", "\xff": "many", "normal:8": "many"},
    "counts": {"queued": "many", "0:queued": "", "\xff": "1"},
    "totals": {"worker_losses": "many"},
    "recent": {"completed": "1", "completed:now": "many", "later": "many"},
    "controls": {"pause:*": "tomorrow", "rate:work": "slow", "max:work": "few", "later:work": "many"},
    "buckets": {"client:anonymous": "full", "*": "full"},
    "lane_names": {"odd": "resize|", "\xff": "resize|", "7": "\xff|", "8": "resize", "9999": "resize|", "9 9": "crop|"},
    "retired_lanes": {"\xff": "1", "odd": "2", "0 1": "3", "0 soon resize|": "4", "x 1 resize|": "5", "0 1 ": "6"},
}
SORTED_SETS = {"retired_lanes"}


async def put_odd(kit: Kit, name: str) -> None:
    key, values = kit.keys.key(name), {field.encode("latin-1"): value for field, value in ODD[name].items()}
    await (kit.client.zadd(key, values) if name in SORTED_SETS else kit.client.hset(key, mapping=values))


async def take_back(kit: Kit, name: str) -> None:
    key, fields = kit.keys.key(name), [field.encode("latin-1") for field in ODD[name]]
    await (kit.client.zrem(key, *fields) if name in SORTED_SETS else kit.client.hdel(key, *fields))


@pytest.mark.parametrize("name", ["lane_names", "retired_lanes"])
async def test_waiting_polls_and_listeners_hear_of_every_lane_beside_an_odd_one(kit: Kit, name: str) -> None:
    await kit.worker()
    await put_odd(kit, name)
    first, second = await kit.submit(), await kit.submit(task_type="crop")
    outbox, source = OutboxStream(kit.client, kit.keys), ReadyLanes(kit.engine.scripts, kit.client, kit.keys)

    page = await outbox.page_after(BEGINNING)
    survey = await source.scan(10)

    assert page is not None
    assert [(event.task_id, event.task_type) for event in page.events] == [(first, "resize"), (second, "crop")]
    assert sorted(survey.ready) == [("crop|", 1), ("resize|", 1)]
    await take_back(kit, name)


@pytest.mark.parametrize("name", ODD)
async def test_statistics_and_sweeps_go_on_beside_an_odd_value(kit: Kit, name: str) -> None:
    await kit.worker()
    await kit.submit()
    before = await kit.client.hgetall(kit.keys.key(name))
    await put_odd(kit, name)

    stats = await kit.insight.stats()
    for _ in range(2):
        await kit.queue.sweep()
    await QueuePictures([kit.engine.scripts]).outcomes(60_000)
    await QueuePictures([kit.engine.scripts]).picture()
    await kit.insight.snapshot()

    assert (stats.ready_count, stats.workers.active) == (1, 1)
    await kit.client.delete(kit.keys.key(name))
    if before:
        await kit.client.hset(kit.keys.key(name), mapping=before)


@pytest.mark.parametrize("name", sorted(ODD.keys() - {"controls"}))
async def test_tasks_are_submitted_claimed_and_completed_beside_an_odd_value(kit: Kit, name: str) -> None:
    await kit.worker()
    await put_odd(kit, name)

    task_id = await kit.submit()
    task = await kit.started()

    assert (task.task_id, await kit.complete(task)) == (task_id, "completed")
    await kit.client.delete(*map(kit.keys.key, (name, "counts")))


async def test_a_limit_that_is_no_number_limits_nothing_and_a_strange_pause_pauses(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    await put_odd(kit, "controls")

    assert (await kit.queue.claim("w1", 1)).tasks == ()
    controls = (await kit.insight.stats()).controls
    await kit.controls.resume()

    assert controls["*"].pause == Pause(None, "", "")
    assert controls["work"].limits.max_executing is None
    assert (await kit.claimed()).attempt == 1


@pytest.mark.parametrize("field", ["d", "registered_ms", "capacity"])
async def test_a_worker_with_an_odd_field_hides_no_other(kit: Kit, field: str) -> None:
    await kit.worker("w1")
    await kit.fleet.register(WorkerDeclaration(worker_id="w2", capacity=3, version="7"))
    await kit.client.hset(kit.keys.prefix("worker") + "w1", field, b"\xff odd")

    page = await kit.fleet.members()
    described = await kit.fleet.get("w1")
    workers = (await kit.insight.stats()).workers

    assert [member.worker.worker_id for member in page.members] == ["w1", "w2"]
    assert page.members[1].worker.version == "7"
    assert described.worker.worker_id == "w1"
    assert workers.active == 2


async def test_a_damaged_age_bucket_never_gets_into_the_ages_of_all(kit: Kit) -> None:
    await kit.worker()
    task_id = await kit.submit()
    records, ages = kit.keys.key("records"), kit.keys.key("ages")
    before, whole = await kit.client.hgetall(ages), await kit.client.hget(records, task_id)
    (bucket,) = before
    await kit.client.hset(records, task_id, whole.replace(bucket, b"normal:soon"))

    task = await kit.claimed()

    assert await kit.client.hgetall(ages) == before
    await kit.client.hset(records, task_id, (await kit.client.hget(records, task_id)).replace(b"normal:soon", bucket))
    await kit.client.delete(ages)
    assert task.task_id == task_id
