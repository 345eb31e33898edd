"""fleet: who is there and how they are, a page at a time."""

import pytest

from tests.contract.situations import started_count, submit_count
from tests.kit import Kit
from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.fleet import WORKER_STATUSES
from tideq.queue_core.task import WorkerDeclaration
from tideq.queue_core.worker_calls import FleetPage, Member

SILENCE_MS = 90_000
HOUR_MS = 3_600_000


def ids(page: FleetPage) -> list[str]:
    return [member.worker.worker_id for member in page.members]


async def only(kit: Kit) -> Member:
    (member,) = (await kit.fleet.members()).members
    return member


async def fleet_of_every_status(kit: Kit) -> None:
    await kit.worker("dead-1")
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()
    for worker_id in ("active-1", "draining-1", "unhealthy-1", "active-2"):
        await kit.worker(worker_id)
    await kit.fleet.drain("draining-1")
    await kit.fleet.set_health("unhealthy-1", is_healthy=False)


async def test_an_empty_fleet_is_an_empty_page(kit: Kit) -> None:
    page = await kit.fleet.members()

    assert (page.members, page.next_after) == ((), "")


async def test_a_member_is_what_it_registered_as(kit: Kit) -> None:
    worker = WorkerDeclaration(
        worker_id="w1",
        task_types=("resize", "crop"),
        capabilities=("gpu",),
        capacity=7,
        version="1.2",
        host="10.0.0.1",
        health_port=8081,
        name="mill",
    )
    await kit.fleet.register(worker)

    page = await kit.fleet.members()

    (member,) = page.members
    assert member.worker == worker
    assert (member.status, member.held_count, member.died_at_ms, member.health) == ("active", 0, None, b"")
    assert member.heartbeat_due_at_ms == member.registered_at_ms + SILENCE_MS
    assert member.registered_at_ms <= page.now_ms


async def test_a_heartbeat_moves_the_deadline_and_keeps_the_health_last_told(kit: Kit) -> None:
    await kit.worker()
    before = await only(kit)
    await kit.clock.advance(1_000)

    beat = await kit.fleet.heartbeat("w1", b'{"memory":1}')
    await kit.fleet.heartbeat("w1")

    member = await only(kit)
    assert member.health == b'{"memory":1}'
    assert member.heartbeat_due_at_ms is not None
    assert member.heartbeat_due_at_ms >= beat.now_ms + SILENCE_MS > (before.heartbeat_due_at_ms or 0)


async def test_a_member_holds_what_it_claimed_and_has_not_settled(kit: Kit) -> None:
    await kit.worker(capacity=10)
    first, *_ = await started_count(kit, 3)
    await submit_count(kit, 2)
    await kit.queue.claim("w1", 2)

    await kit.complete(first)

    assert (await only(kit)).held_count == 4


async def test_a_dead_member_is_told_with_the_deadline_it_missed(kit: Kit) -> None:
    await kit.worker()
    missed = (await only(kit)).heartbeat_due_at_ms
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()

    member = await only(kit)

    assert (member.status, member.held_count, member.heartbeat_due_at_ms) == ("dead", 0, missed)
    assert member.died_at_ms is not None
    assert member.died_at_ms >= (missed or 0)


async def test_a_dead_member_is_forgotten_after_an_hour(kit: Kit) -> None:
    await kit.worker()
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()
    await kit.clock.advance(HOUR_MS + 1_000)
    await kit.queue.sweep()

    assert (await kit.fleet.members()).members == ()


async def test_a_member_that_came_back_from_the_dead_is_there_once(kit: Kit) -> None:
    await kit.worker()
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()
    await kit.worker()

    member = await only(kit)

    assert (member.status, member.died_at_ms) == ("active", None)


@pytest.mark.parametrize("status", WORKER_STATUSES)
async def test_members_of_one_status_are_those_and_no_others(kit: Kit, status: str) -> None:
    await fleet_of_every_status(kit)

    page = await kit.fleet.members([status])

    expected = ["active-1", "active-2"] if status == "active" else [f"{status}-1"]
    assert (ids(page), {member.status for member in page.members}) == (expected, {status})


async def test_members_of_several_statuses_are_listed_together(kit: Kit) -> None:
    await fleet_of_every_status(kit)

    assert ids(await kit.fleet.members(["dead", "draining"])) == ["dead-1", "draining-1"]
    assert len((await kit.fleet.members()).members) == 5


async def test_pages_hold_every_member_once_while_heartbeats_go_on(kit: Kit) -> None:
    everyone = [f"w{number:02d}" for number in range(25)]
    for worker_id in reversed(everyone):
        await kit.worker(worker_id)

    seen, page = list[str](), await kit.fleet.members(limit=4)
    while True:
        seen += ids(page)
        if not page.next_after:
            break
        for worker_id in everyone[::3]:
            await kit.fleet.heartbeat(worker_id)
        page = await kit.fleet.members(limit=4, after=page.next_after)

    assert seen == everyone


async def test_a_page_that_ends_with_the_last_member_is_the_last(kit: Kit) -> None:
    for worker_id in ("a", "b"):
        await kit.worker(worker_id)

    assert (await kit.fleet.members(limit=2)).next_after == ""
    assert (await kit.fleet.members(limit=1)).next_after == "a"


@pytest.mark.parametrize("limit", [0, -1, 501])
async def test_a_page_of_no_sensible_size_is_refused(kit: Kit, limit: int) -> None:
    with pytest.raises(InvalidRequest):
        await kit.fleet.members(limit=limit)


async def test_a_status_no_worker_can_have_is_refused(kit: Kit) -> None:
    with pytest.raises(InvalidRequest, match="asleep"):
        await kit.fleet.members(["asleep"])


async def test_listing_changes_nothing(kit: Kit) -> None:
    await fleet_of_every_status(kit)
    before = await kit.dump()

    await kit.fleet.members(limit=2)

    assert await kit.dump() == before
