"""submit: a batch whose one idempotency key stands for all of it."""

from collections.abc import Sequence

import pytest

from tests.contract.situations import events
from tests.kit import Kit
from tideq.queue_core.errors import IdempotencyConflict
from tideq.queue_core.task import NewTask, TraceContext

COUNT = 20


def _batch(names: Sequence[str] = ("resize",) * COUNT, key: str = "k", **options: object) -> list[NewTask]:
    """As the service makes them of a batch and its key."""
    places = [*(f"{key}/{place}" for place in range(len(names) - 1)), f"{key}/"]
    return [
        NewTask(task_type=name, idempotency_key=place, batch_size=len(names), **options)  # pyright: ignore[reportArgumentType]
        for name, place in zip(names, places, strict=True)
    ]


async def _submitted(kit: Kit, batch: Sequence[NewTask]) -> list[str]:
    return [answer.task_id for answer in await kit.queue.submit_many(batch)]


@pytest.mark.parametrize("delay_ms", [None, 60_000], ids=["ready", "hidden"])
async def test_the_same_batch_again_is_every_one_of_its_tasks(kit: Kit, delay_ms: int | None) -> None:
    first = await kit.queue.submit_many(_batch(delay_ms=delay_ms))
    before = await kit.dump()

    again = await kit.queue.submit_many(_batch(delay_ms=delay_ms, trace=TraceContext("00-other")))

    assert [each.task_id for each in again] == [each.task_id for each in first]
    assert (all(each.is_new for each in first), any(each.is_new for each in again)) == (True, False)
    assert await kit.dump() == before


async def test_a_batch_is_one_event_entry_and_one_key(kit: Kit) -> None:
    """History then has all of it or nothing, and the store remembers one thing for all of them."""
    ids = await _submitted(kit, _batch())

    assert await kit.client.xlen(kit.keys.key("outbox")) == 1
    assert [event.task_id for event in await events(kit)] == ids
    tasks = [await kit.read(task_id) for task_id in ids]
    assert {task.definition.idempotency_key for task in tasks} == {None}
    kept = [name async for name in kit.client.scan_iter(match=f"*{kit.keys.tag}*idempotency*")]
    assert len(kept) == 1


@pytest.mark.parametrize(
    "names",
    [("resize",) * (COUNT - 1), ("resize",) * (COUNT + 1), ("crop", *("resize",) * (COUNT - 1))],
    ids=["shorter", "longer", "other"],
)
async def test_another_batch_under_the_key_is_refused_whole(kit: Kit, names: Sequence[str]) -> None:
    ids = await _submitted(kit, _batch())
    before = await kit.dump()

    with pytest.raises(IdempotencyConflict) as refusal:
        await kit.queue.submit_many(_batch(names))

    assert refusal.value.task_id == ids[-1]
    assert await kit.dump() == before


async def test_a_batch_with_some_keys_of_its_own_meets_the_one_without(kit: Kit) -> None:
    """Either way round: the last place is the same for both."""
    whole = _batch(key="a")
    mixed = [NewTask(task_type="resize", idempotency_key="mine"), *_batch(key="b")[1:]]
    await kit.queue.submit_many(whole)
    ids = await _submitted(kit, mixed)

    assert await _submitted(kit, mixed) == ids
    for batch in (_batch(key="b"), [mixed[0], *whole[1:]]):
        with pytest.raises(IdempotencyConflict):
            await kit.queue.submit_many(batch)


async def test_purging_one_of_them_does_not_free_the_key(kit: Kit) -> None:
    """To repeat the batch would double all the others."""
    ids = await _submitted(kit, _batch())
    for task_id in (ids[0], ids[-1]):
        await kit.queue.cancel(task_id)
        await kit.queue.purge(task_id)

    assert await _submitted(kit, _batch()) == ids
    assert (await kit.insight.stats()).total_depth == COUNT - 2


async def test_another_clients_key_is_another(kit: Kit) -> None:
    assert not {*await _submitted(kit, _batch())} & {*await _submitted(kit, _batch(client_id="shop"))}
