"""Idempotency keys end by the queue's time, not by what the server's clock says for a moment."""

from tests.kit import Kit
from tideq.queue_core.task import NewTask

DAY_MS = 86_400_000


async def _kept_keys(kit: Kit) -> list[bytes]:
    """Of all partitions."""
    pattern = f"tideq:{{{kit.settings.queue_name}:*}}:idempotency:*"
    return [key async for key in kit.client.scan_iter(match=pattern)]


async def test_a_servers_clock_that_is_a_week_ahead_ends_no_key(kit: Kit) -> None:
    await kit.submit(idempotency_key="k")

    (key,) = await _kept_keys(kit)

    assert await kit.client.pttl(key) > kit.settings.retention.idempotency_ttl_ms + 7 * DAY_MS


async def test_keys_are_removed_when_their_time_is_over(kit: Kit) -> None:
    await kit.submit(idempotency_key="one")
    await kit.queue.submit_many([NewTask(task_type="resize", idempotency_key=f"k{n}") for n in range(3)])
    await kit.clock.advance(kit.settings.retention.idempotency_ttl_ms - 1_000)
    await kit.queue.sweep()
    assert len(await _kept_keys(kit)) == 4

    await kit.clock.advance(2_000)
    await kit.queue.sweep()

    assert await _kept_keys(kit) == []


async def test_a_key_that_was_taken_again_stays_for_its_own_time(kit: Kit) -> None:
    first = await kit.submit(idempotency_key="k")
    await kit.queue.cancel(first)
    await kit.queue.purge(first)
    await kit.clock.advance(kit.settings.retention.idempotency_ttl_ms // 2)
    later = await kit.submit(idempotency_key="k")

    await kit.clock.advance(kit.settings.retention.idempotency_ttl_ms // 2 + 1_000)
    await kit.queue.sweep()

    assert later != first
    assert await kit.submit(idempotency_key="k") == later
