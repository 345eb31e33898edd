"""More partitions than before: nothing moves, nothing is forgotten, and keys stand for what they stood for."""

import uuid
from typing import Any

import pytest

from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tideq.queue_core.errors import IdempotencyConflict, InvalidTask
from tideq.queue_core.scripts.keys import SLOTS, Keys, hash_tag, slot_of
from tideq.queue_core.settings import QueueSettings, SettingsError, read_settings
from tideq.queue_core.task import NewTask
from tideq.queue_core.task_id import TaskIds, partition_of
from tideq.queue_core.worker_calls import ReportedState


@pytest.fixture
def queue_name() -> str:
    return uuid.uuid4().hex[:12]


async def grown(client: Any, queue_name: str, *numbers: int) -> Kit:
    return await make_kit(client, queue_name, QueueSettings(partitions=numbers))


async def test_tasks_that_wait_and_tasks_that_are_held_go_on(client: Any, queue_name: str) -> None:
    small = await grown(client, queue_name, 2)
    waiting = [await small.submit() for _ in range(10)]
    await small.worker(capacity=100)
    held = await small.started()
    await small.controls.limit("crawl", max_executing=5)
    await small.controls.pause("mail", reason="moving")

    large = await grown(client, queue_name, 2, 8)
    new = [await large.submit() for _ in range(64)]

    assert await large.complete(held) == "completed"
    assert {partition_of(task_id) for task_id in new} == set(range(8))
    claim = await large.queue.claim("w1", 100)
    assert {task.task_id for task in claim.tasks} == {*waiting, *new} - {held.task_id}
    assert [(await part.controls.rules()).get("max:crawl") for part in large.engine.parts] == ["5"] * 8
    assert [bool((await part.controls.rules()).get("pause:mail")) for part in large.engine.parts] == [True] * 8
    await large.assert_sound()


async def test_a_first_partition_that_lost_its_store_lifts_nobodys_pauses(client: Any, queue_name: str) -> None:
    kit = await grown(client, queue_name, 4)
    await kit.controls.pause("mail", reason="moving")
    await kit.controls.limit("crawl", max_executing=2)
    await client.delete(*[key async for key in client.scan_iter(match=f"tideq:[{{]{queue_name}:0}}:*")])

    again = await grown(client, queue_name, 4)

    pauses = [(await part.controls.rules()).get("pause:mail") for part in again.engine.parts]
    limits = [(await part.controls.rules()).get("max:crawl") for part in again.engine.parts]
    assert (len(set(pauses)), set(limits), bool(pauses[0])) == (1, {"2"}, True)


async def test_a_worker_of_before_is_introduced_to_the_new_partitions(client: Any, queue_name: str) -> None:
    small = await grown(client, queue_name, 2)
    await small.worker(task_types=("resize",), capacity=3)

    large = await grown(client, queue_name, 2, 8)
    await large.fleet.heartbeat("w1")

    for part in large.engine.parts:
        described = await part.fleet.get("w1")
        assert (described.status, described.worker.capacity) == ("active", 3)
    (member,) = (await large.fleet.members()).members
    assert member.worker.task_types == ("resize",)


async def test_a_worker_that_drains_is_not_brought_back(client: Any, queue_name: str) -> None:
    small = await grown(client, queue_name, 2)
    await small.worker()
    await small.fleet.drain("w1")

    large = await grown(client, queue_name, 2, 8)

    assert (await large.fleet.heartbeat("w1")).should_drain
    assert (await large.engine.parts[0].fleet.get("w1")).status == "draining"
    with pytest.raises(Exception, match="not registered"):
        await large.engine.parts[7].fleet.get("w1")


@pytest.mark.parametrize("word", ["draining", "unhealthy"])
async def test_a_worker_is_introduced_with_what_it_says_of_itself(
    client: Any, queue_name: str, word: ReportedState
) -> None:
    small = await grown(client, queue_name, 2)
    await small.worker()
    await small.fleet.heartbeat("w1", reported_state=word)

    large = await grown(client, queue_name, 2, 8)
    await large.fleet.heartbeat("w1")

    assert [(await part.fleet.get("w1")).status for part in large.engine.parts] == [word] * 8
    await large.fleet.heartbeat("w1", reported_state="active")
    assert (await large.fleet.get("w1")).status == "active"


@pytest.mark.parametrize("word", ["draining", "unhealthy"])
async def test_a_partition_that_has_not_heard_of_it_gives_a_worker_nothing(
    client: Any, queue_name: str, word: ReportedState
) -> None:
    """One that was away when the worker said so: to have no new work holds for the whole queue."""
    kit = await grown(client, queue_name, 4)
    await kit.worker(capacity=40)
    for _ in range(40):
        await kit.submit()

    await kit.engine.parts[2].fleet.heartbeat("w1", reported_state=word)

    assert (await kit.queue.claim("w1", 40)).tasks == ()
    assert (await kit.fleet.get("w1")).reason == f"{word}_by_itself"
    await kit.fleet.heartbeat("w1", reported_state="active")
    assert len((await kit.queue.claim("w1", 40)).tasks) == 40


@pytest.mark.parametrize("numbers", [(2, 8), (8, 2)])
async def test_a_key_stands_for_the_same_task(client: Any, queue_name: str, numbers: tuple[int, ...]) -> None:
    small = await grown(client, queue_name, 2)
    before = {key: await small.submit(idempotency_key=key) for key in map(str, range(20))}

    large = await grown(client, queue_name, *numbers)

    assert {key: await large.submit(idempotency_key=key) for key in before} == before
    with pytest.raises(IdempotencyConflict):
        await large.submit(idempotency_key="3", parameters=b'{"other":1}')


async def test_processes_that_know_of_different_numbers_agree_about_keys(client: Any, queue_name: str) -> None:
    small, both = await grown(client, queue_name, 2), await grown(client, queue_name, 2, 8)

    first = {key: await both.submit(idempotency_key=key) for key in map(str, range(20))}

    assert {key: await small.submit(idempotency_key=key) for key in first} == first


async def test_an_id_that_its_submitter_chose_is_found_after_growing(client: Any, queue_name: str) -> None:
    one = await grown(client, queue_name, 1)
    chosen = TaskIds(partition=133).new()
    await one.submit(task_id=chosen)

    many = await grown(client, queue_name, 1, 8)

    assert (await many.read(chosen)).task_id == chosen
    assert not (await many.queue.submit(NewTask(task_type="resize", task_id=chosen))).is_new
    assert (await many.queue.cancel(chosen)).task_id == chosen


async def test_a_batch_of_many_keys_is_answered_the_same_again(client: Any, queue_name: str) -> None:
    kit = await grown(client, queue_name, 4)
    batch = [NewTask(task_type="resize", idempotency_key=str(n)) for n in range(50)]

    first = await kit.queue.submit_many(batch)
    again = await kit.queue.submit_many(batch)

    assert [answer.task_id for answer in again] == [answer.task_id for answer in first]
    assert (any(answer.is_new for answer in again), all(answer.is_new for answer in first)) == (False, True)
    assert (await kit.insight.stats()).total_depth == 50


async def test_a_batch_of_many_keys_that_is_refused_leaves_no_trace(client: Any, queue_name: str) -> None:
    """The conflict is found in one partition before anything is written to the others."""
    kit = await grown(client, queue_name, 4)
    await kit.submit(idempotency_key="7", parameters=b'{"other":1}')
    before = await kit.dump()

    with pytest.raises(IdempotencyConflict):
        await kit.queue.submit_many([NewTask(task_type="resize", idempotency_key=str(n)) for n in range(50)])

    assert await kit.dump() == before


async def test_a_batch_that_shares_a_key_lies_in_one_partition(client: Any, queue_name: str) -> None:
    """And is found there when there are more partitions."""
    batches = [
        [NewTask(task_type="resize", idempotency_key=f"{key}/{n or ''}", batch_size=5) for n in range(4, -1, -1)]
        for key in "abcdefgh"
    ]
    small, large = await grown(client, queue_name, 2), await grown(client, queue_name, 2, 8)
    first = [await small.queue.submit_many(batch) for batch in batches]

    again = [await large.queue.submit_many(batch) for batch in batches]

    assert all(len({partition_of(each.task_id) for each in answers}) == 1 for answers in first)
    assert [[each.task_id for each in answers] for answers in again] == [
        [each.task_id for each in answers] for answers in first
    ]
    assert (await large.insight.stats()).total_depth == 40


async def test_an_id_may_lie_elsewhere_than_its_key(client: Any, queue_name: str) -> None:
    kit = await grown(client, queue_name, 8)
    chosen = {str(partition): TaskIds(partition).new() for partition in range(8)}

    first = {key: await kit.submit(idempotency_key=key, task_id=task_id) for key, task_id in chosen.items()}

    assert first == chosen
    assert {key: await kit.submit(idempotency_key=key) for key in chosen} == chosen


async def test_a_batch_whose_chosen_ids_lie_in_several_partitions_is_refused(client: Any, queue_name: str) -> None:
    kit = await grown(client, queue_name, 8)
    before = await kit.dump()

    with pytest.raises(InvalidTask, match="task_id: lies") as refusal:
        await kit.queue.submit_many([NewTask(task_type="resize", task_id=TaskIds(each).new()) for each in (3, 3, 4)])

    assert refusal.value.row == 2
    assert await kit.dump() == before


def test_partitions_spread_evenly_whatever_their_number() -> None:
    for count in (2, 4, 8, 16, 64):
        slots = sorted(slot_of(hash_tag("default", partition)) for partition in range(count))
        gaps = [(after - before) % SLOTS for before, after in zip(slots, [*slots[1:], slots[0]], strict=True)]
        assert max(gaps) - SLOTS // count < 128, count


def test_the_first_partition_keeps_its_name() -> None:
    assert Keys("default").tag == "tideq:{default:0}:"
    assert len({Keys("default", partition).tag for partition in range(256)}) == 256


@pytest.mark.parametrize(("written", "numbers"), [("8", (8,)), ("2,8", (2, 8)), ("1", (1,)), ("256", (256,))])
def test_the_number_is_a_setting(written: str, numbers: tuple[int, ...]) -> None:
    assert read_settings({"TIDEQ_PARTITIONS": written}).partitions == numbers


@pytest.mark.parametrize("written", ["", "0", "257", "-1", "x", "2;8"])
def test_a_number_that_cannot_be_is_refused(written: str) -> None:
    with pytest.raises(SettingsError, match="TIDEQ_PARTITIONS"):
        read_settings({"TIDEQ_PARTITIONS": written})


async def test_one_partition_costs_nothing(
    client: Any, store: StoreUnderTest, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same keys as ever, and one call of the store for each verb."""
    kit = await grown(client, queue_name, 1)
    await kit.worker()
    await kit.submit()
    done = await kit.started()
    await kit.complete(done)
    await kit.queue.read(done.task_id)
    await kit.fleet.heartbeat("w1")
    called: list[str] = []
    execute: Any = client.execute_command

    def counting(command: str, *words: Any, **options: Any) -> Any:
        called.append(command)
        return execute(command, *words, **options)

    monkeypatch.setattr(client, "execute_command", counting)
    await kit.submit()
    held = await kit.started()
    await kit.complete(held)
    await kit.queue.read(held.task_id)
    await kit.fleet.heartbeat("w1")

    assert called == ["EVALSHA"] * 6
    tag = f"tideq:{{{queue_name}:0}}:"
    assert all(key.startswith(tag) for key in await kit.dump())
    assert kit.engine.parts == (kit.engine,)
