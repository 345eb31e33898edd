"""A batch is all or none, wherever its tasks' keys belong and whatever happens in between."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tideq.queue_core.errors import (
    IdempotencyConflict,
    KeyPending,
    QueueFull,
    StoreUnavailable,
    TooManySubmissions,
)
from tideq.queue_core.partition import Partition, Removed
from tideq.queue_core.partitioning import key_reservation
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.task import NewTask
from tideq.queue_core.task_id import partition_of


@pytest.fixture
def partitions() -> tuple[int, ...]:
    return (8,)


@pytest.fixture
async def others(kit: Kit, store: StoreUnderTest) -> AsyncIterator[list[Kit]]:
    """The same queue as other processes have it."""
    clients = [store.client() for _ in range(3)]
    yield [await make_kit(client, kit.settings.queue_name, kit.settings) for client in clients]
    for client in clients:
        await client.aclose()


def keyed(*keys: object, body: bytes = b"{}") -> list[NewTask]:
    return [NewTask(task_type="resize", idempotency_key=str(key), parameters=body) for key in keys]


async def depth(kit: Kit) -> int:
    return (await kit.insight.stats()).total_depth


async def pending_keys(kit: Kit) -> list[str]:
    return [key for key, value in (await kit.dump()).items() if "idempotency:" in key and b"pending" in value]


async def test_a_batch_of_many_keys_lies_in_one_partition_and_each_key_stands_for_its_task(kit: Kit) -> None:
    answers = await kit.queue.submit_many(keyed(*range(30)))

    ids = [answer.task_id for answer in answers]
    assert len({partition_of(task_id) for task_id in ids}) == 1
    assert all(answer.is_new for answer in answers)
    assert [await kit.submit(idempotency_key=str(number)) for number in range(30)] == ids
    with pytest.raises(IdempotencyConflict) as conflict:
        await kit.submit(idempotency_key="7", parameters=b'{"other":1}')
    assert conflict.value.task_id == ids[7]
    assert (await depth(kit), await pending_keys(kit)) == (30, [])


async def test_a_batch_with_some_known_keys_adds_only_the_others(kit: Kit) -> None:
    before = {number: await kit.submit(idempotency_key=str(number)) for number in range(0, 20, 3)}
    free = NewTask(task_type="resize")

    answers = await kit.queue.submit_many([*keyed(*range(20)), free, *keyed(5)])

    assert {number: answers[number].task_id for number in before} == before
    assert [answer.is_new for answer in answers] == [*(number not in before for number in range(20)), True, False]
    assert answers[21].task_id == answers[5].task_id
    assert await depth(kit) == 21


async def test_keys_of_a_batch_are_removed_in_every_partition_when_their_time_is_over(kit: Kit) -> None:
    await kit.queue.submit_many(keyed(*range(30)))
    kept = [key for key in await kit.dump() if ":idempotency:" in key]
    await kit.clock.advance(kit.settings.retention.idempotency_ttl_ms + 1_000)

    for _ in kit.engine.parts:
        await kit.queue.sweep()

    assert len(kept) > 30  # each where it belongs, and most where their tasks lie as well
    assert not [key for key in await kit.dump() if ":idempotency:" in key]


async def test_one_key_twice_in_a_batch_with_other_content_refuses_all_of_it(kit: Kit) -> None:
    before = await kit.dump()

    with pytest.raises(IdempotencyConflict):
        await kit.queue.submit_many([*keyed(*range(20)), *keyed(3, body=b'{"other":1}')])

    assert await kit.dump() == before


async def test_batches_with_the_same_keys_in_any_order_at_once_make_each_task_once(kit: Kit, others: list[Kit]) -> None:
    for number in range(10):
        keys = [f"{number}-{each}" for each in range(8)]
        batches = [keyed(*random.Random(f"{number} {n}").sample(keys, 8)) for n in range(len(others))]

        answers = await asyncio.gather(
            *(other.queue.submit_many(batch) for other, batch in zip(others, batches, strict=True))
        )

        ids = [
            {task.idempotency_key: answer.task_id for task, answer in zip(batch, told, strict=True)}
            for batch, told in zip(batches, answers, strict=True)
        ]
        assert all(each == ids[0] for each in ids)
        assert [sum(answer.is_new for answer in told) for told in answers].count(8) == 1
        assert await depth(kit) == 8 * (number + 1)
    assert await pending_keys(kit) == []


async def test_a_batch_that_overtakes_a_single_submission_of_its_key_makes_one_task(
    kit: Kit, others: list[Kit]
) -> None:
    for number in range(20):
        batch, single = await asyncio.gather(
            others[0].queue.submit_many(keyed(f"a{number}", f"b{number}", f"c{number}")),
            others[1].queue.submit(keyed(f"b{number}")[0]),
        )

        assert batch[1].task_id == single.task_id
        assert await depth(kit) == 3 * (number + 1)


async def test_a_batch_whose_process_died_before_it_was_written_is_as_if_it_never_was(
    kit: Kit, others: list[Kit], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(Partition, "submit_prepared", _cut_off)
        with pytest.raises(StoreUnavailable):
            await others[0].queue.submit_many(keyed(*range(20)))
    assert await depth(kit) == 0
    assert await pending_keys(kit)
    with monkeypatch.context() as impatient:
        impatient.setattr(key_reservation, "WAIT_SECONDS", 0.0)
        with pytest.raises(KeyPending):
            await kit.queue.submit_many(keyed(*range(20)))

    await kit.clock.advance(10_001)
    answers = await kit.queue.submit_many(keyed(*range(20), body=b'{"other":1}'))

    assert all(answer.is_new for answer in answers)
    assert (await depth(kit), await pending_keys(kit)) == (20, [])


async def test_a_batch_whose_process_died_after_it_was_written_stands_and_is_met_by_its_keys(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(Partition, "settle_keys", _cut_off)
        first = await kit.queue.submit_many(keyed(*range(20)))
    assert await pending_keys(kit)

    again = [await kit.submit(idempotency_key=str(number)) for number in range(20)]

    assert again == [answer.task_id for answer in first]
    assert (await depth(kit), await pending_keys(kit)) == (20, [])


async def test_a_process_that_slept_before_it_wrote_writes_nothing(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Partition.submit_prepared

    async def sleepy(self: Partition, *arguments: Any, **named: Any) -> Any:
        await kit.clock.advance(5_001)
        return await submit(self, *arguments, **named)

    before = await kit.dump()
    with monkeypatch.context() as slow:
        slow.setattr(Partition, "submit_prepared", sleepy)
        with pytest.raises(StoreUnavailable, match="expired"):
            await kit.queue.submit_many(keyed(*range(20)))

    assert await pending_keys(kit) == []
    assert await depth(kit) == 0
    assert {key for key in await kit.dump() if "idempotency:" in key} == {
        key for key in before if "idempotency:" in key
    }


async def test_keys_of_purged_tasks_are_free_wherever_they_belong(kit: Kit) -> None:
    first = await kit.queue.submit_many(keyed(*range(20)))
    for answer in first[:10]:
        await kit.queue.cancel(answer.task_id)

    for outcome in await kit.queue.purge_many([answer.task_id for answer in first[:10]]):
        outcome.unwrap()

    again = await kit.queue.submit_many(keyed(*range(20)))
    assert [answer.is_new for answer in again] == [True] * 10 + [False] * 10


async def test_keys_of_tasks_that_history_removed_are_free_wherever_they_belong(kit: Kit) -> None:
    first = await kit.queue.submit_many(keyed(*range(20)))
    removed: list[Removed] = []
    for part in kit.engine.parts:
        snapshot = await part.insight.snapshot()
        removed += [Removed(task_id, record["idempotency"]) for task_id, record in snapshot.records.items()]
        if snapshot.records:
            await kit.client.hdel(part.keys.key("records"), *snapshot.records)

    await kit.queue.forget_many(removed)

    assert len(removed) == len(first) == 20
    assert not [key for key in await kit.dump() if "idempotency:" in key]
    for part in kit.engine.parts:
        await kit.client.delete(*(part.keys.key(name) for name in ("queue", "heads", "counts", "ages", "definitions")))


async def test_a_batch_key_with_keys_of_its_own_is_taken_whole_and_repeated(kit: Kit) -> None:
    tasks = [
        *(NewTask(task_type="resize", idempotency_key=f"batch/{row or ''}", batch_size=4) for row in (3, 2, 1, 0)),
        *keyed(*range(8)),
    ]

    first = await kit.queue.submit_many(tasks)
    again = await kit.queue.submit_many(tasks)

    assert [answer.task_id for answer in again] == [answer.task_id for answer in first]
    assert await depth(kit) == 12


@pytest.mark.parametrize("numbers", [(2, 8), (8, 2)])
async def test_batches_from_before_growing_are_met_by_their_keys(
    client: Any, kit: Kit, numbers: tuple[int, ...]
) -> None:
    name = f"{kit.settings.queue_name}-small"
    small = await make_kit(client, name, QueueSettings(partitions=(2,)))
    first = await small.queue.submit_many(keyed(*range(20)))

    large = await make_kit(client, name, QueueSettings(partitions=numbers))
    again = await large.queue.submit_many(keyed(*range(25)))

    assert [answer.task_id for answer in again[:20]] == [answer.task_id for answer in first]
    assert [answer.is_new for answer in again] == [False] * 20 + [True] * 5


class TestNearTheDepthLimit:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        depths = {"soft_depth": 100, "high_only_depth": 100, "max_depth": 100}
        return QueueSettings(admission=msgspec.structs.replace(Admission(), **depths))

    async def test_batches_of_many_processes_are_taken_whole_or_leave_no_trace(
        self, kit: Kit, others: list[Kit]
    ) -> None:
        taken = refused = 0

        async def produce(other: Kit, name: int) -> None:
            nonlocal taken, refused
            for number in range(8):
                try:
                    await other.queue.submit_many(keyed(*(f"{name}-{number}-{each}" for each in range(12))))
                    taken += 1
                except QueueFull:
                    refused += 1

        await asyncio.gather(*(produce(other, name) for name, other in enumerate(others)))

        assert (await depth(kit), taken, taken + refused) == (12 * taken, 8, 24)
        assert await pending_keys(kit) == []


async def _cut_off(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("the process died here")


@pytest.mark.parametrize("partitions", [(1,), (8,)], ids=["one-partition", "eight"])
class TestPartlyKnown:
    """Only what is new of a batch counts against limits, with one partition and with several."""

    @pytest.fixture
    def settings(self) -> QueueSettings:
        limits = {"soft_depth": 100, "high_only_depth": 100, "max_depth": 200}
        rate = {"client_rate_per_second": 0.001, "client_burst": 110}
        return QueueSettings(admission=msgspec.structs.replace(Admission(), **limits, **rate))

    async def test_a_batch_is_taken_where_there_is_room_for_what_is_new_of_it(self, kit: Kit) -> None:
        known = await kit.queue.submit_many(keyed(*range(96)))

        answers = await kit.queue.submit_many(keyed(*range(100)))
        again = await kit.queue.submit_many(keyed(*range(100)))
        with pytest.raises(QueueFull):
            await kit.queue.submit_many(keyed(*range(101)))

        assert [answer.task_id for answer in answers[:96]] == [answer.task_id for answer in known]
        assert [answer.is_new for answer in answers] == [False] * 96 + [True] * 4
        assert not any(answer.is_new for answer in again)
        assert (await depth(kit), await pending_keys(kit)) == (100, [])

    async def test_a_batch_larger_than_the_burst_is_taken_where_what_is_new_of_it_is_not(self, kit: Kit) -> None:
        await kit.worker(capacity=1_000)
        await kit.queue.submit_many(keyed(*range(90)))
        await kit.queue.claim("w1", 90)

        answers = await kit.queue.submit_many(keyed(*range(110)))
        await kit.queue.claim("w1", 90)
        with pytest.raises(TooManySubmissions):
            await kit.queue.submit_many(keyed(*range(111)))
        await kit.clock.advance(1_000_000)
        more = await kit.queue.submit_many(keyed(*range(111)))

        assert [sum(answer.is_new for answer in each) for each in (answers, more)] == [20, 1]
        assert await pending_keys(kit) == []

    async def test_known_tasks_bind_a_batch_to_no_stage_of_their_priority(self, kit: Kit) -> None:
        await kit.queue.submit_many(keyed(*range(100)))
        urgent = [NewTask(task_type="resize", idempotency_key=f"u{each}", priority="high") for each in range(5)]

        answers = await kit.queue.submit_many([*keyed(*range(3)), *urgent])

        assert [answer.is_new for answer in answers] == [False] * 3 + [True] * 5
