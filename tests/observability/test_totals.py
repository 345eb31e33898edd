"""Recoveries as counters: they only ever grow, and outlive the last hour's statistics."""

import pytest

from tests.kit import Kit
from tests.observability.conftest import Whole
from tests.observability.scrape import scrape
from tideq.queue_core.settings import Leases, QueueSettings


@pytest.fixture
def queue_settings(queue_settings: QueueSettings) -> QueueSettings:
    return QueueSettings(queue_name=queue_settings.queue_name, leases=Leases())


async def test_every_kind_of_recovery_is_counted_for_good(quiet: Whole) -> None:
    kit, leases = quiet.kit, quiet.kit.settings.leases
    await kit.worker()
    for _ in range(3):
        await kit.submit(timeout_ms=1_000)
    await kit.claimed()
    await kit.clock.advance(leases.assignment_ms + 1_000)
    await kit.queue.sweep()
    await kit.started()
    await kit.clock.advance(2_000)
    await kit.queue.sweep()
    await kit.started()
    await _fall_silent(kit)
    await kit.clock.advance(2 * 3_600_000)
    await kit.queue.sweep()

    told = await scrape(quiet.http)

    assert told.value("tideq_task_assignment_timeouts_total") == 1
    assert told.value("tideq_task_execution_timeouts_total") == 2
    assert told.value("tideq_task_visibility_timeouts_total") == 3
    assert told.value("tideq_worker_heartbeat_failures_total") == 1
    assert told.value("tideq_tasks_retried_total") == 2
    assert told.value("tideq_last_hour_recoveries", kind="workers_lost") == 0


async def _fall_silent(kit: Kit) -> None:
    """Past its heartbeat's deadline, and past its task's."""
    await kit.clock.advance(kit.settings.leases.heartbeat_timeout_ms + 1_000)
    await kit.queue.sweep()
