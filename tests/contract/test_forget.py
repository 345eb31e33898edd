"""forget: what outlives the record of a finished task, once history has removed it."""

from tests.contract.situations import NEVER_MADE_ID
from tests.kit import Kit
from tideq.queue_core.partition import Removed


async def _dead(kit: Kit) -> Removed:
    """A dead letter with an idempotency key: its id, and the key as its record has it."""
    await kit.worker()
    task_id = await kit.submit(idempotency_key="k")
    await kit.fail(await kit.started(), verdict="discard")
    packed: bytes = await kit.client.hget(kit.keys.key("records"), task_id)
    task_type = (await kit.read(task_id)).definition.task_type
    return Removed(task_id, packed.decode().split("\0")[-2], task_type, "dead_letter")


async def _forgotten(kit: Kit) -> Removed:
    """The same, acknowledged and gone from the store."""
    gone = await _dead(kit)
    task_id = gone.task_id
    await kit.engine.partition.acknowledge("0-0", [(task_id, (await kit.read(task_id)).version)])
    await kit.clock.advance(kit.settings.retention.result_ttl_ms + 1)
    await kit.queue.sweep()
    assert await kit.queue.read_many([task_id]) == [None]
    return gone


async def test_a_dead_letter_is_no_longer_counted(kit: Kit) -> None:
    gone = await _forgotten(kit)
    assert (await kit.insight.stats()).dead_letter_count == 1

    await kit.queue.forget_many([gone])

    assert (await kit.insight.stats()).dead_letter_count == 0


async def test_its_idempotency_key_is_free_again(kit: Kit) -> None:
    gone = await _forgotten(kit)
    assert await kit.submit(idempotency_key="k") == gone.task_id

    await kit.queue.forget_many([gone])

    assert await kit.submit(idempotency_key="k") != gone.task_id


async def test_a_key_that_stands_for_a_later_task_stays(kit: Kit) -> None:
    gone = await _forgotten(kit)
    await kit.queue.forget_many([gone])
    later = await kit.submit(idempotency_key="k")

    await kit.queue.forget_many([gone])

    assert await kit.submit(idempotency_key="k") == later


async def test_a_task_that_the_store_has_keeps_everything(kit: Kit) -> None:
    present = await _dead(kit)
    before = await kit.dump()

    await kit.queue.forget_many([present, Removed(NEVER_MADE_ID, "")])

    assert await kit.dump() == before
