"""Lanes: numbered on first use, 2 047 of them, given away after an empty hour, a few new ones a day for each client."""

import pytest

from tests.contract.situations import claimed_ids
from tests.kit import Kit
from tideq.queue_core.errors import LanesExhausted, TooManyNewLanes
from tideq.queue_core.outbox.stream import BEGINNING, OutboxStream
from tideq.queue_core.score import MAX_LANES
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.task import NewTask

HOUR_MS = 3_600_000
DAY_MS = 86_400_000


@pytest.fixture
def settings() -> QueueSettings:
    return QueueSettings(admission=Admission(max_new_lanes_per_day=10_000))


async def fill_lanes(kit: Kit, count: int) -> list[str]:
    """A task in each of so many new lanes, of types t0, t1 …"""
    tasks = [NewTask(task_type=f"t{number}") for number in range(count)]
    batches = [tasks[start : start + 1_000] for start in range(0, count, 1_000)]
    return [answer.task_id for batch in batches for answer in await kit.queue.submit_many(batch)]


async def exhaust_lanes(kit: Kit) -> list[str]:
    """A task in each of the first eight lanes; all others taken, by signatures that never ran empty."""
    task_ids = await fill_lanes(kit, 8)
    taken = {lane: f"taken{lane}|" for lane in range(8, MAX_LANES)}
    await kit.client.hset(kit.keys.key("lane_names"), mapping=taken)
    await kit.client.hset(kit.keys.key("lanes"), mapping={signature: lane for lane, signature in taken.items()})
    return task_ids


async def test_a_lane_is_a_type_with_a_set_of_capabilities(kit: Kit) -> None:
    same = [await kit.submit("a", required_capabilities=names) for names in (("x", "y"), ("y", "x"), ("x", "y", "x"))]
    others = [await kit.submit("a"), await kit.submit("a", required_capabilities=("x",)), await kit.submit("b")]

    lanes = [(await kit.read(task_id)).lane for task_id in (*same, *others)]
    assert lanes == [0, 0, 0, 1, 2, 3]


async def test_every_lane_can_be_filled_and_the_last_holds_tasks_like_any_other(kit: Kit) -> None:
    *_, last = await fill_lanes(kit, MAX_LANES)
    await kit.worker(task_types=("t2046",))

    with pytest.raises(LanesExhausted):
        await kit.submit("one-too-many")

    assert (await kit.read(last)).lane == 2_046
    assert await claimed_ids(kit) == [last]


async def test_a_lane_too_many_is_refused_and_changes_nothing(kit: Kit) -> None:
    await exhaust_lanes(kit)
    before = await kit.dump()

    with pytest.raises(LanesExhausted) as refusal:
        await kit.queue.submit_many([NewTask(task_type="t7"), NewTask(task_type="one-too-many")])

    assert refusal.value.signature == "one-too-many|"
    assert await kit.dump() == before


async def test_a_lane_empty_for_an_hour_is_given_to_another_signature(kit: Kit) -> None:
    task_ids = await exhaust_lanes(kit)
    await kit.queue.cancel(task_ids[5])
    with pytest.raises(LanesExhausted):
        await kit.submit("newcomer")
    await kit.clock.advance(HOUR_MS)

    task_id = await kit.submit("newcomer")

    await kit.worker(task_types=("newcomer",))
    assert (await kit.read(task_id)).lane == 5
    assert await claimed_ids(kit) == [task_id]


async def test_events_of_a_lane_given_away_keep_the_type_it_stood_for(kit: Kit) -> None:
    """Also one that comes after it was given away: a finished task goes on naming its lane by the number."""
    task_ids = await exhaust_lanes(kit)
    await kit.queue.cancel(task_ids[5])
    await kit.clock.advance(HOUR_MS)
    newcomer = await kit.submit("newcomer")
    await kit.queue.purge(task_ids[5])

    page = await OutboxStream(kit.client, kit.keys).page_after(BEGINNING)

    assert page is not None
    told = {
        each: [event.task_type for event in page.events if event.task_id == each] for each in (task_ids[5], newcomer)
    }
    assert told == {task_ids[5]: ["t5", "t5", "t5"], newcomer: ["newcomer"]}


async def test_a_lane_given_away_is_not_served_to_those_who_served_it_before(kit: Kit) -> None:
    task_ids = await exhaust_lanes(kit)
    await kit.worker(task_types=("t5",))
    await kit.queue.cancel(task_ids[5])
    await claimed_ids(kit)
    await kit.clock.advance(HOUR_MS)
    await kit.fleet.heartbeat("w1")

    await kit.submit("newcomer")

    assert await claimed_ids(kit) == []


async def test_a_lane_used_again_within_the_hour_stays_what_it_is(kit: Kit) -> None:
    task_ids = await exhaust_lanes(kit)
    await kit.queue.cancel(task_ids[5])
    await kit.clock.advance(HOUR_MS // 2)
    again = await kit.submit("t5")
    await kit.clock.advance(HOUR_MS)

    with pytest.raises(LanesExhausted):
        await kit.submit("newcomer")

    assert (await kit.read(again)).lane == 5


async def test_a_lane_emptied_again_counts_its_hour_anew(kit: Kit) -> None:
    task_ids = await exhaust_lanes(kit)
    await kit.queue.cancel(task_ids[5])
    await kit.clock.advance(2 * HOUR_MS)
    await kit.queue.cancel(await kit.submit("t5"))

    with pytest.raises(LanesExhausted):
        await kit.submit("newcomer")

    await kit.clock.advance(HOUR_MS)
    assert await kit.submit("newcomer")


async def test_a_lane_asked_for_in_the_same_submission_is_not_given_away(kit: Kit) -> None:
    task_ids = await exhaust_lanes(kit)
    await kit.queue.cancel(task_ids[5])
    await kit.clock.advance(HOUR_MS)
    before = await kit.dump()

    with pytest.raises(LanesExhausted):
        await kit.queue.submit_many([NewTask(task_type="t5"), NewTask(task_type="newcomer")])

    assert await kit.dump() == before


async def test_a_task_whose_lane_was_given_away_is_retried_in_a_lane_of_its_own_kind(kit: Kit) -> None:
    task_ids = await exhaust_lanes(kit)
    await kit.queue.cancel_many(task_ids[5:7])
    await kit.clock.advance(HOUR_MS)
    await kit.submit("newcomer")

    await kit.queue.retry(task_ids[5])

    await kit.worker(task_types=("t5",))
    assert await claimed_ids(kit) == [task_ids[5]]


async def test_a_lane_given_away_twice_serves_the_last(kit: Kit) -> None:
    task_ids = await exhaust_lanes(kit)
    await kit.queue.cancel(task_ids[5])
    for number in range(3):
        await kit.clock.advance(HOUR_MS)
        await kit.queue.cancel(await kit.submit(f"newcomer{number}"))
    await kit.clock.advance(HOUR_MS)

    task_id = await kit.submit("last")

    assert (await kit.read(task_id)).lane == 5
    assert len((await kit.insight.snapshot()).lane_names) == MAX_LANES


class TestQuota:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=Admission(max_new_lanes_per_day=3))

    async def test_a_new_lane_beyond_the_clients_quota_is_refused_and_changes_nothing(self, kit: Kit) -> None:
        await fill_lanes(kit, 3)
        before = await kit.dump()

        with pytest.raises(TooManyNewLanes) as refusal:
            await kit.submit("fourth")

        assert (refusal.value.client_id, refusal.value.max_new_lanes) == ("anonymous", 3)
        assert await kit.dump() == before

    async def test_a_batch_that_would_pass_the_quota_opens_no_lane(self, kit: Kit) -> None:
        before = await kit.dump()

        with pytest.raises(TooManyNewLanes):
            await fill_lanes(kit, 4)

        assert await kit.dump() == before

    async def test_known_lanes_cost_no_quota(self, kit: Kit) -> None:
        await fill_lanes(kit, 3)

        assert await kit.submit("t1")

    async def test_another_client_has_its_own_quota(self, kit: Kit) -> None:
        await fill_lanes(kit, 3)

        assert await kit.submit("fourth", client_id="other")

    async def test_the_quota_is_fresh_the_next_day(self, kit: Kit) -> None:
        await fill_lanes(kit, 3)

        await kit.clock.advance(DAY_MS)

        assert await kit.submit("fourth")


class TestDefaultQuota:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings()

    async def test_a_client_may_open_256_lanes_a_day(self, kit: Kit) -> None:
        await fill_lanes(kit, 256)

        with pytest.raises(TooManyNewLanes):
            await kit.submit("one-too-many")
