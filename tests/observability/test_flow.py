"""What the flow meter makes of tasks' lives: times as the store's clock has them, counted once over all monitors."""

import re

import pytest

from tests.contract.situations import submit_count
from tests.kit import Kit
from tideq.queue_core.engine.journal import JournalStore
from tideq.queue_core.engine.scripts import LUA
from tideq.queue_core.readings import Counters, Distribution, Labels, Reading
from tideq.workers.monitor.flow import MAX_TASK_TYPES, FlowMeter
from tideq.workers.monitor.journal.follower import Follower

PROCESS = "7"


class Monitor:
    """A follower of the journal that looks when it is told to."""

    def __init__(self, kit: Kit) -> None:
        self.counters = Counters()
        store = JournalStore(kit.client, kit.engine.scripts, kit.keys)
        self.follower = Follower(store, [FlowMeter(self.counters)])

    async def catch_up(self) -> None:
        told = -1
        while told != self.follower.told_count:
            told = self.follower.told_count
            await self.follower.step()

    def rows(self, metric: str) -> dict[Labels, Reading]:
        found = self.counters.readings(PROCESS).get(metric, {})
        return {labels[1:]: value for labels, value in found.items()}

    def milliseconds(self, metric: str, *labels: str) -> tuple[int, int]:
        """How many, and how long in all."""
        found = self.rows(metric)[labels]
        assert isinstance(found, Distribution)
        return found.count, round(found.total * 1000)


@pytest.fixture
async def monitor(kit: Kit) -> Monitor:
    monitor = Monitor(kit)
    await monitor.catch_up()
    return monitor


async def test_times_per_state_are_those_of_the_stores_clock(kit: Kit, monitor: Monitor) -> None:
    await kit.worker()
    await kit.submit(priority="high")
    await kit.clock.advance(20_000)
    task = await kit.claimed()
    await kit.clock.advance(3_000)
    await kit.start(task)
    await kit.clock.advance(40_000)
    await kit.complete(task)
    lived = await kit.read(task.task_id)

    await monitor.catch_up()

    created, assigned, started, ended = (
        at_ms or 0 for at_ms in (lived.created_at_ms, lived.assigned_at_ms, lived.started_at_ms, lived.ended_at_ms)
    )
    states = "tideq_task_state_duration_seconds"
    assert monitor.milliseconds(states, "queued", "high") == (1, assigned - created)
    assert monitor.milliseconds(states, "assigned", "high") == (1, started - assigned)
    assert monitor.milliseconds(states, "executing", "high") == (1, ended - started)
    assert monitor.milliseconds("tideq_task_duration_seconds", "high", "completed") == (1, ended - created)
    executions = "tideq_task_execution_duration_seconds"
    assert monitor.milliseconds(executions, "resize", "succeeded") == (1, ended - started)
    assert ended - created >= 63_000


async def test_backoff_is_no_time_in_the_queue(kit: Kit, monitor: Monitor) -> None:
    await kit.worker()
    task_id = await kit.submit(max_retries=1)
    await kit.fail(await kit.started())
    hidden_until_ms = (await kit.read(task_id)).visible_at_ms or 0
    await kit.clock.advance(15_000)
    await kit.fail(await kit.started())
    lived = await kit.read(task_id)

    await monitor.catch_up()

    count, total_ms = monitor.milliseconds("tideq_task_state_duration_seconds", "queued", "medium")
    waited_ms = (lived.assigned_at_ms or 0) - hidden_until_ms
    assert count == 2
    assert waited_ms <= total_ms < waited_ms + 5_000
    assert monitor.rows("tideq_task_retries_total") == {("1", "medium"): 1}
    failures = {("error", "medium"): 1, ("retries_exhausted", "medium"): 1}
    assert monitor.rows("tideq_task_failures_total") == failures
    assert monitor.rows("tideq_task_dead_letters_total") == {("retries_exhausted", "medium"): 1}


def test_every_reason_to_give_a_task_up_is_told_from_the_beginning() -> None:
    """What first appears as fifty never rose: no alert would tell of it."""
    scripts = [path.read_text() for folder in (LUA, LUA / "include") for path in folder.iterdir() if path.is_file()]
    reasons = {reason for text in scripts for reason in re.findall(r"bury\(task_id, task, '(\w+)'", text)}
    counters = Counters()

    FlowMeter(counters, ["high", "low"])

    told = counters.readings(PROCESS)["tideq_task_dead_letters_total"]
    assert told == {(PROCESS, reason, level): 0 for reason in reasons for level in ("high", "low")}
    assert len(reasons) == 4


async def test_transitions_are_counted_by_where_from_where_to_and_why(kit: Kit, monitor: Monitor) -> None:
    await kit.worker()
    await kit.submit()
    await kit.complete(await kit.started())
    await kit.queue.cancel(await kit.submit())

    await monitor.catch_up()

    assert monitor.rows("tideq_transitions_total") == {
        ("new", "queued", "submitted"): 2,
        ("queued", "assigned", "claimed"): 1,
        ("assigned", "executing", "started"): 1,
        ("executing", "completed", "succeeded"): 1,
        ("queued", "cancelled", "cancelled"): 1,
    }


async def test_over_two_monitors_the_numbers_add_up(kit: Kit, monitor: Monitor) -> None:
    other = Monitor(kit)
    await other.catch_up()
    for number in range(20):
        await submit_count(kit, 5)
        await (monitor, other)[number % 2].follower.step()
    await monitor.catch_up()
    await other.catch_up()

    submitted = ("new", "queued", "submitted")
    counts = [each.rows("tideq_transitions_total").get(submitted, 0) for each in (monitor, other)]
    assert sum(count for count in counts if isinstance(count, float)) == 100


async def test_types_beyond_the_most_are_told_together(kit: Kit, monitor: Monitor) -> None:
    await kit.worker()
    for number in range(MAX_TASK_TYPES + 5):
        await kit.submit(f"type-{number}")
        await kit.complete(await kit.started())

    await monitor.catch_up()

    assert len(monitor.rows("tideq_task_execution_duration_seconds")) == MAX_TASK_TYPES + 1
    assert monitor.milliseconds("tideq_task_execution_duration_seconds", "other", "succeeded")[0] == 5
