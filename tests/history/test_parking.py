"""Events PostgreSQL cannot hold are put aside with an alarm, and the rest goes on.

The engine takes what the HTTP edge would have refused.
"""

import itertools

import pytest
from structlog.testing import capture_logs

from tests.contract.situations import held, submit_count
from tests.history.situations import execute, replicate_all, replicating, rows, until, until_replicated
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore
from tideq.queue_core.attempts import Success
from tideq.queue_core.task import NewTask, TraceContext

POISONED = (
    NewTask(task_type="resize", parameters=b'{"a":"\0"}'),
    NewTask(task_type="resize", parameters=b'{"a":"\xff\xfe"}'),
    NewTask(task_type="resize", tags={"a": "zero\0byte"}),
    NewTask(task_type="resize", trace=TraceContext("00-not_hexadecimal-x-01")),
)
TASK_COUNT, POISON_COUNT = 5_000, 20
PARKED = "SELECT task_id, version, problem FROM parked_events ORDER BY parked_id"


async def test_twenty_poisoned_tasks_among_thousands_are_parked_and_all_others_applied(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.worker(capacity=10_000)
    poisoned, healthy = await _submit_mixed(kit)
    await _finish_everything(kit)

    with capture_logs() as logs:
        await replicate_all(kept, store.url, kit, migrated)

    parked = await rows(migrated, PARKED)
    assert {task_id for task_id, _, _ in parked} == poisoned
    for task_id in poisoned:
        assert [version for parked_id, version, _ in parked if parked_id == task_id] == [1, 2, 3, 4]
    applied = await rows(migrated, "SELECT task_id::text, state FROM tasks")
    assert dict(applied) == dict.fromkeys(healthy, "completed")
    assert await rows(migrated, "SELECT count(*) FROM task_events") == [(4 * len(healthy),)]
    alarms = [each for each in logs if each["event"] == "event parked"]
    assert {each["task_id"] for each in alarms} == poisoned
    assert {each["log_level"] for each in alarms} == {"error"}
    await _assert_stay_in_the_store(kit, poisoned, healthy)


async def _submit_mixed(kit: Kit) -> tuple[set[str], set[str]]:
    poisoned: set[str] = set()
    healthy: set[str] = set()
    kinds = itertools.cycle(POISONED)
    spacing = TASK_COUNT // POISON_COUNT
    for _ in range(POISON_COUNT):
        tasks = [*(NewTask(task_type="resize") for _ in range(spacing - 1)), next(kinds)]
        *well, bad = await kit.queue.submit_many(tasks)
        healthy.update(each.task_id for each in well)
        poisoned.add(bad.task_id)
    return poisoned, healthy


async def _finish_everything(kit: Kit) -> None:
    while tasks := (await kit.queue.claim("w1", 1_000)).tasks:
        await kit.attempts.start("w1", held(*tasks))
        for outcome in await kit.attempts.complete("w1", [Success(task.task_id, task.lease) for task in tasks]):
            outcome.unwrap()


async def _assert_stay_in_the_store(kit: Kit, poisoned: set[str], healthy: set[str]) -> None:
    """The store alone knows all of them: it forgets what history has and nothing else."""
    await kit.clock.advance(kit.settings.retention.result_ttl_ms)
    await kit.queue.sweep()
    assert all(await kit.queue.read_many(sorted(poisoned)))
    assert not any(await kit.queue.read_many(sorted(healthy)[:1_000]))


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("complete", b'"\0"'),
        ("complete", b'"\xc3"'),
        ("discard", b'{"message":"\xff"}'),
        ("discard", b'{"message":"zero\\u0000byte"}'),
    ],
    ids=["zero in a result", "no text in a result", "no text in an error", "zero in a message"],
)
async def test_an_ending_that_cannot_be_written_is_parked_behind_a_history_that_stays_true(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, verb: str, body: bytes
) -> None:
    await kit.worker()
    (other,) = await submit_count(kit, 1, priority="low")
    await submit_count(kit, 1)
    task = await kit.started()
    await (kit.complete(task, result=body) if verb == "complete" else kit.fail(task, error=body, verdict="discard"))

    await replicate_all(kept, store.url, kit, migrated)

    assert [(task_id, version) for task_id, version, _ in await rows(migrated, PARKED)] == [(task.task_id, 4)]
    assert dict(await rows(migrated, "SELECT task_id::text, version FROM tasks")) == {task.task_id: 3, other: 1}
    assert len(await rows(migrated, "SELECT FROM task_events")) == 4
    assert await rows(migrated, "SELECT FROM dead_letter_tasks") == []


async def test_what_a_parked_task_does_later_is_parked_behind_it_by_any_replicator(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    (bad,) = await kit.queue.submit_many([POISONED[0]])
    await replicate_all(kept, store.url, kit, migrated)
    await kit.queue.cancel(bad.task_id)
    (good,) = await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)

    assert [(task_id, version) for task_id, version, _ in await rows(migrated, PARKED)] == [
        (bad.task_id, 1),
        (bad.task_id, 2),
    ]
    assert await rows(migrated, "SELECT task_id::text FROM tasks") == [(good,)]


async def test_an_own_id_submitted_again_after_the_store_forgot_it_is_parked_and_blocks_nobody(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    task_id = await kit.submit()
    await kit.queue.cancel(task_id)
    async with replicating(kept, store.url, kit):
        await until(lambda: kit.client.zcard(kit.keys.key("expiring")))
        await kit.clock.advance(kit.settings.retention.result_ttl_ms)
        await kit.queue.sweep()
        await kit.submit(task_id=task_id)
        other = await kit.submit()
        await until_replicated(kit, migrated)

    assert [(parked, version) for parked, version, _ in await rows(migrated, PARKED)] == [(task_id, 1)]
    assert dict(await rows(migrated, "SELECT task_id::text, state FROM tasks")) == {
        task_id: "cancelled",
        other: "queued",
    }
    assert (await kit.read(task_id)).state == "queued"


async def test_a_definition_nobody_can_read_is_parked_and_blocks_nobody(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    broken, other = await submit_count(kit, 2)
    await kit.client.hset(kit.keys.key("definitions"), broken, b"\xc1 is no message")
    await replicate_all(kept, store.url, kit, migrated)

    assert [task_id for task_id, _, _ in await rows(migrated, PARKED)] == [broken]
    assert await rows(migrated, "SELECT task_id::text FROM tasks") == [(other,)]


async def test_an_error_nested_too_deep_to_be_read_is_kept_as_it_is(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    deep = b'{"message":"boom","details":%b%b}' % (b"[" * 30_000, b"]" * 30_000)
    await kit.submit()
    await kit.worker()
    await kit.fail(await kit.started(), error=deep, verdict="discard")
    await replicate_all(kept, store.url, kit, migrated)

    assert await rows(migrated, PARKED) == []
    assert await rows(migrated, "SELECT error FROM tasks") == [(deep.decode(),)]
    assert await rows(migrated, "SELECT reason FROM dead_letter_tasks") == [("discarded",)]


async def test_a_partition_that_is_made_at_the_moment_parks_nothing(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """A row on its way to another partition is refused by a check; the next try finds the new one."""
    await execute(migrated, "ALTER TABLE tasks ADD CONSTRAINT made_meanwhile CHECK (false) NOT VALID")
    await submit_count(kit, 3)

    with capture_logs() as logs:

        async def was_refused() -> bool:
            return any(each["event"] == "duty failed" for each in logs)

        async with replicating(kept, store.url, kit):
            await until(was_refused)
            await execute(migrated, "ALTER TABLE tasks DROP CONSTRAINT made_meanwhile")
            await until_replicated(kit, migrated)

    assert await rows(migrated, PARKED) == []
    assert await rows(migrated, "SELECT count(*) FROM tasks") == [(3,)]
