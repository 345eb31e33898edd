"""A row that cannot be read is set aside by itself, and comes back once it can be; what is not known is kept as it is.

Records are damaged, or written as a later version would, behind the engine's back.
"""

from collections.abc import Callable

import pytest

from tests.kit import Kit
from tideq.queue_core.attempts import Extension, Failure, LeaseRef, Success
from tideq.queue_core.errors import StaleLease, StoreFormatUnknown, TaskNotFound, WrongState
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.states import TaskState

ASIDE_MS = 15_000
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda record: b"",
    "no record at all": lambda record: b"\xff\xfe garbage",
    "cut in its head": lambda record: record[:20],
    "of an unknown format": lambda record: b"99\0" + record,
    "a field in the middle": lambda record: record.replace(b"queued\0", b"queued\0new\0", 1),
    "a state of a later version": lambda record: record.replace(b"queued\0", b"sleeping\0", 1),
}


async def record_of(kit: Kit, task_id: str) -> bytes:
    return await kit.client.hget(kit.keys.key("records"), task_id)


async def put_record(kit: Kit, task_id: str, record: bytes) -> None:
    await kit.client.hset(kit.keys.key("records"), task_id, record)


async def put_field(kit: Kit, task_id: str, name: str, value: bytes) -> None:
    fields = (await record_of(kit, task_id)).split(b"\0")
    fields[1 + NAMES.index(name)] = value
    await put_record(kit, task_id, b"\0".join(fields))


async def set_aside(kit: Kit) -> list[str]:
    return [task_id.decode() for task_id in await kit.client.zrange(kit.keys.key("unreadable"), 0, -1)]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_claim_that_meets_an_unreadable_record_sets_it_aside_and_hands_out_the_rest(
    kit: Kit, damage: str
) -> None:
    await kit.worker()
    bad, good = await kit.submit(head_start_ms=1_000), await kit.submit()
    whole = await record_of(kit, bad)
    await put_record(kit, bad, DAMAGES[damage](whole))

    claim = await kit.queue.claim("w1", 10)

    assert [task.task_id for task in claim.tasks] == [good]
    assert await set_aside(kit) == [bad]
    assert await kit.client.zscore(kit.keys.key("queue"), bad) is None
    assert (await kit.insight.stats()).unreadable_count == 1
    await put_record(kit, bad, whole)
    await kit.assert_sound()


@pytest.mark.parametrize("kept", ["all before its rank", "all before its retries", "all before its losses"])
async def test_claim_of_a_later_attempt_sets_a_record_aside_that_is_cut_off_and_hands_out_the_rest(
    kit: Kit, kept: str
) -> None:
    await kit.worker()
    bad = await kit.submit(max_retries=3, head_start_ms=1_000)
    await kit.fail(await kit.started())
    await kit.clock.advance(60_000)
    await kit.queue.sweep()
    good = await kit.submit()
    fields, end = (await record_of(kit, bad)).split(b"\0")[:-1], NAMES.index(kept.rpartition(" ")[2])
    await put_record(kit, bad, b"".join(field + b"\0" for field in fields[:end]))

    claim = await kit.queue.claim("w1", 10)

    assert [task.task_id for task in claim.tasks] == [good]
    assert await set_aside(kit) == [bad]
    cut_off = await record_of(kit, bad)
    await put_record(kit, bad, cut_off + b"".join(field + b"\0" for field in fields[end:]))
    await kit.clock.advance(ASIDE_MS)
    await kit.queue.sweep()
    assert await set_aside(kit) == []
    await kit.assert_sound()


async def test_claim_that_only_met_unreadable_records_is_told_to_ask_again_at_once(kit: Kit) -> None:
    await kit.worker()
    bad, good = await kit.submit(head_start_ms=1_000), await kit.submit()
    await put_record(kit, bad, b"garbage")

    first = await kit.queue.claim("w1", 1)
    second = await kit.queue.claim("w1", 1)

    assert (first.tasks, first.retry_at_ms) == ((), first.now_ms)
    assert [task.task_id for task in second.tasks] == [good]


@pytest.mark.parametrize("part", ["head", "tail"])
async def test_sweep_recovers_what_is_due_beside_an_unreadable_record(kit: Kit, part: str) -> None:
    await kit.worker()
    bad, good = await kit.submit(), await kit.submit()
    await kit.queue.claim("w1", 2)
    whole = await record_of(kit, bad)
    await put_record(kit, bad, b"garbage" if part == "head" else whole[:-30])
    await kit.clock.advance(30_000)

    await kit.queue.sweep()

    assert (await kit.read(good)).state is TaskState.QUEUED
    assert await set_aside(kit) == [bad]


async def test_a_task_set_aside_comes_back_where_it_was_as_soon_as_it_can_be_read(kit: Kit) -> None:
    await kit.worker()
    first, second = await kit.submit(), await kit.submit()
    score, whole = await kit.client.zscore(kit.keys.key("queue"), first), await record_of(kit, first)
    await put_record(kit, first, b"garbage")
    await kit.queue.claim("w1", 1)
    await put_record(kit, first, whole)
    await kit.clock.advance(ASIDE_MS)

    await kit.queue.sweep()

    assert await set_aside(kit) == []
    assert await kit.client.zscore(kit.keys.key("queue"), first) == score
    await kit.assert_sound()
    assert [task.task_id for task in (await kit.queue.claim("w1", 2)).tasks] == [first, second]


async def test_an_executing_task_set_aside_comes_back_hidden_and_held(kit: Kit) -> None:
    await kit.worker()
    await kit.submit(timeout_ms=1_000)
    task = await kit.started()
    whole = await record_of(kit, task.task_id)
    await put_record(kit, task.task_id, b"garbage")
    await kit.clock.advance(1_000)
    await kit.queue.sweep()
    await put_record(kit, task.task_id, whole)
    await kit.clock.advance(ASIDE_MS)

    await kit.queue.sweep()
    await kit.queue.sweep()

    assert (await kit.read(task.task_id)).retry_count == 1
    await kit.assert_sound()


async def test_a_task_that_still_cannot_be_read_is_looked_at_again_later(kit: Kit) -> None:
    await kit.worker()
    bad = await kit.submit()
    await put_record(kit, bad, b"garbage")
    await kit.queue.claim("w1", 1)
    await kit.clock.advance(ASIDE_MS)

    await kit.queue.sweep()

    assert await set_aside(kit) == [bad]
    assert await record_of(kit, bad) == b"garbage"


@pytest.mark.parametrize("field", ["visible_ms", "started_ms"])
async def test_a_worker_s_batch_is_accepted_beside_a_record_whose_instant_is_none(kit: Kit, field: str) -> None:
    await kit.worker()
    for _ in range(2):
        await kit.submit()
    tasks = (await kit.queue.claim("w1", 2)).tasks
    held = [LeaseRef(task.task_id, task.lease) for task in tasks]
    await kit.attempts.start("w1", held)
    await put_field(kit, tasks[0].task_id, field, b"soon")

    extended = await kit.attempts.extend("w1", [Extension(*each, 60_000) for each in held])
    completed = await kit.attempts.complete("w1", [Success(*each) for each in held])

    for bad, good in (extended, completed):
        assert isinstance(bad.error, StaleLease)
        assert good.error is None
    await kit.clock.advance(900_000)
    await kit.queue.sweep()
    assert await set_aside(kit) == [tasks[0].task_id]


async def test_an_executing_task_that_never_says_when_it_started_is_extended_and_completed(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    task = await kit.started()
    await put_field(kit, task.task_id, "started_ms", b"")

    (extended,) = await kit.attempts.extend("w1", [Extension(task.task_id, task.lease, 60_000)])

    assert extended.error is None
    assert await kit.complete(task) == "completed"


@pytest.mark.parametrize("field", ["created_ms", "eligible_ms", "max_retries"])
async def test_sweep_brings_back_what_is_due_beside_a_record_with_a_cold_field_that_is_no_number(
    kit: Kit, field: str
) -> None:
    await kit.worker()
    bad, good = await kit.submit(), await kit.submit()
    await kit.queue.claim("w1", 2)
    await put_field(kit, bad, field, b"soon")
    await kit.clock.advance(30_000)

    await kit.queue.sweep()

    assert (await kit.read(good)).state is TaskState.QUEUED
    assert await set_aside(kit) == [bad]


async def test_a_backoff_that_is_no_number_is_the_services(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    task = await kit.started()
    await put_field(kit, task.task_id, "backoff", b"a,b,c")

    await kit.fail(task, jitter=0.0)

    found = await kit.read(task.task_id)
    assert (found.state, found.visible_at_ms) == (TaskState.QUEUED, found.state_since_ms + kit.settings.backoff.base_ms)


async def test_verbs_about_an_unreadable_task_are_refused_and_change_nothing(kit: Kit) -> None:
    await kit.worker()
    good = await kit.submit()
    await kit.submit()
    tasks = {task.task_id: task for task in (await kit.queue.claim("w1", 2)).tasks}
    fine = tasks.pop(good)
    (task,) = tasks.values()
    await put_record(kit, task.task_id, b"garbage")
    before = await kit.dump()

    for verb in (kit.queue.cancel, kit.queue.purge, kit.insight.explain, kit.queue.retry):
        with pytest.raises((WrongState, TaskNotFound)):
            await verb(task.task_id)
    held = [LeaseRef(task.task_id, task.lease)]
    outcomes = [
        *await kit.attempts.start("w1", held),
        *await kit.attempts.release("w1", held),
        *await kit.attempts.complete("w1", [Success(task.task_id, task.lease)]),
        *await kit.attempts.fail("w1", [Failure(task.task_id, task.lease, b"{}")]),
    ]

    assert all(isinstance(outcome.error, StaleLease) for outcome in outcomes)
    assert await kit.queue.read_many([task.task_id]) == [None]
    assert await kit.dump() == before
    await kit.start(fine)
    assert await kit.complete(fine) == "completed"


@pytest.mark.parametrize("definition", [None, b"", b"garbage", b"\x92\x01\x02"])
async def test_claim_of_a_task_without_a_readable_definition_sets_it_aside_free_of_charge(
    kit: Kit, definition: bytes | None
) -> None:
    await kit.worker()
    bad, good = await kit.submit(head_start_ms=1_000), await kit.submit()
    whole = await kit.client.hget(kit.keys.key("definitions"), bad)
    await kit.client.hdel(kit.keys.key("definitions"), bad)
    if definition is not None:
        await kit.client.hset(kit.keys.key("definitions"), bad, definition)

    claim = await kit.queue.claim("w1", 2)

    assert [task.task_id for task in claim.tasks] == [good]
    assert await set_aside(kit) == [bad]
    await kit.client.hset(kit.keys.key("definitions"), bad, whole)
    await kit.clock.advance(ASIDE_MS)
    await kit.queue.sweep()
    task = await kit.claimed()
    assert (task.task_id, task.attempt, (await kit.read(bad)).deliveries) == (bad, 1, 0)


@pytest.mark.parametrize("field", ["age_bucket", "backoff", "idempotency"])
async def test_a_byte_that_is_no_text_costs_no_other_task_of_the_claim_anything(kit: Kit, field: str) -> None:
    await kit.worker()
    bad, good = await kit.submit(head_start_ms=1_000), await kit.submit()
    whole = await record_of(kit, bad)
    await put_field(kit, bad, field, whole.split(b"\0")[1 + NAMES.index(field)] + b"\xff")

    claim = await kit.queue.claim("w1", 2)

    assert [task.task_id for task in claim.tasks] == [good]
    assert await set_aside(kit) == [bad]
    await put_record(kit, bad, (await record_of(kit, bad)).replace(b"\xff", b""))
    await kit.clock.advance(ASIDE_MS)
    await kit.queue.sweep()
    assert [task.task_id for task in (await kit.queue.claim("w1", 2)).tasks] == [bad]


async def test_a_dead_workers_tasks_come_back_beside_one_that_cannot_be_read(kit: Kit) -> None:
    await kit.worker()
    bad, good = await kit.submit(), await kit.submit()
    for task in (await kit.queue.claim("w1", 2)).tasks:
        await kit.start(task)
    await put_record(kit, bad, b"garbage")
    await kit.clock.advance(90_000)

    await kit.queue.sweep()

    assert (await kit.read(good)).losses == 1
    assert await set_aside(kit) == [bad]


async def test_a_finished_task_among_those_a_dead_worker_held_stays_finished(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    task = await kit.started()
    await kit.complete(task)
    await kit.client.sadd(kit.keys.prefix("worker_tasks") + "w1", task.task_id)
    await kit.clock.advance(90_000)

    await kit.queue.sweep()

    assert (await kit.read(task.task_id)).state is TaskState.COMPLETED
    await kit.assert_sound()


async def test_a_task_of_another_worker_among_those_a_dead_one_held_stays_with_its_own(kit: Kit) -> None:
    await kit.worker("w1")
    await kit.worker("w2")
    await kit.submit(timeout_ms=600_000)
    task = await kit.started("w2")
    await kit.client.sadd(kit.keys.prefix("worker_tasks") + "w1", task.task_id)
    await kit.clock.advance(60_000)
    await kit.fleet.heartbeat("w2")
    await kit.clock.advance(31_000)

    await kit.queue.sweep()

    assert (await kit.read(task.task_id)).state is TaskState.EXECUTING
    await kit.assert_sound()


@pytest.mark.parametrize("stray", ["unknown", "finished", "unreadable"])
async def test_a_worker_with_a_stray_id_in_its_hand_can_leave(kit: Kit, stray: str) -> None:
    await kit.worker()
    task_id = await kit.submit()
    task = await kit.started()
    if stray == "finished":
        await kit.complete(task)
    elif stray == "unreadable":
        await put_record(kit, task_id, b"garbage")
    held = task_id if stray != "unknown" else "01a1f00a-29bc-7772-b799-005281ba876e"
    await kit.client.sadd(kit.keys.prefix("worker_tasks") + "w1", held)

    await kit.fleet.remove("w1")

    expected = {"unknown": TaskState.QUEUED, "finished": TaskState.COMPLETED}.get(stray)
    assert expected is None or (await kit.read(task_id)).state is expected
    assert not await kit.client.exists(kit.keys.prefix("worker_tasks") + "w1")


async def test_fields_that_only_a_later_version_knows_go_through_a_whole_life_byte_for_byte(kit: Kit) -> None:
    await kit.worker()
    task_id = await kit.submit()
    await put_record(kit, task_id, await record_of(kit, task_id) + b"tenant-7\0\0later\0")

    task = await kit.started()
    await kit.fail(task, jitter=0.0)
    await kit.clock.advance(60_000)
    await kit.queue.sweep()
    task = await kit.started()
    await kit.complete(task)

    assert (await record_of(kit, task_id)).endswith(b"\0tenant-7\0\0later\0")
    assert (await kit.read(task_id)).attempt == 2


async def test_a_result_is_repeated_although_a_later_version_remembered_more_of_it(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    task = await kit.started()
    await kit.complete(task)
    last_result = (await record_of(kit, task.task_id)).split(b"\0")[1 + NAMES.index("last_result")]
    await put_field(kit, task.task_id, "last_result", last_result + b",later,more")

    assert await kit.complete(task) == "completed"
    with pytest.raises(WrongState):
        await kit.complete(task, result=b"another")


async def test_notes_that_nobody_can_read_hide_neither_the_task_nor_others(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    task = await kit.started()
    await kit.fail(task, error=b'"first"', jitter=0.0)
    other = await kit.submit()
    strange: dict[str | bytes, str | bytes] = {
        "eta": "soon",
        "": "nothing",
        "e": "none",
        b"\xff": "",
        "p": b"1|\xff|much",
    }
    await kit.client.hset(kit.keys.prefix("attempt_notes") + task.task_id, mapping=strange)

    found = await kit.queue.read_many([task.task_id, other])

    assert [each and (each.task_id, each.errors, each.progress) for each in found] == [
        (task.task_id, (b'"first"',), None),
        (other, (), None),
    ]


async def test_a_store_of_a_later_format_is_left_alone(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    await kit.client.hset(kit.keys.key("meta"), "format", 99)
    before = await kit.dump()

    with pytest.raises(StoreFormatUnknown, match="format 99"):
        await kit.queue.claim("w1", 1)
    with pytest.raises(StoreFormatUnknown):
        await kit.submit()

    assert await kit.dump() == before
    await kit.client.hset(kit.keys.key("meta"), "format", 3)
