"""Waiting polls: woken for work, once each, and never for nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.lanes import worker_profile
from tideq.queue_core.polls import poll_wakeups
from tideq.queue_core.polls.poll_wakeups import PollWakeups
from tideq.queue_core.polls.ready_lanes import ReadyLanes
from tideq.queue_core.polls.waiting_polls import WaitingPoll, WaitingPolls
from tideq.queue_core.settings import Circuit, QueueSettings
from tideq.queue_core.store.connect import connect_listener
from tideq.queue_core.task import Claim, NewTask

LONG = 30.0
NEW_LANES = 200


class Pollers:
    """Polls against one waiting room, counting the claims they make."""

    def __init__(self, kit: Kit, wakeups: PollWakeups) -> None:
        self.kit = kit
        self.wakeups = wakeups
        self.claim_count = 0

    def poll(self, worker_id: str = "w1", wanted: int = 1, wait: float = LONG, **profile: Any) -> asyncio.Task[Claim]:
        waiter = WaitingPoll(
            worker_id, worker_profile(profile.get("task_types"), profile.get("capabilities", ())), wanted
        )
        return asyncio.create_task(self.wakeups.poll(waiter, lambda: self._claim(worker_id, wanted), wait))

    async def asleep(self, count: int) -> None:
        """Until this many polls have looked once, found nothing and wait."""
        while self.wakeups.sleeping_count < count:
            await asyncio.sleep(0.001)

    async def _claim(self, worker_id: str, wanted: int) -> Claim:
        self.claim_count += 1
        return await self.kit.queue.claim(worker_id, wanted)


@pytest.fixture
async def pollers(kit: Kit, store: StoreUnderTest) -> AsyncIterator[Pollers]:
    source = ReadyLanes(kit.engine.scripts, kit.client, kit.keys)
    async with PollWakeups([source], lambda: connect_listener(store.url)) as wakeups:
        await wakeups.wait_until_subscribed()
        yield Pollers(kit, wakeups)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every notification is lost."""

    def ignore(self: PollWakeups, channel: str, message: str) -> None:
        return None

    monkeypatch.setattr(PollWakeups, "_on_message", ignore)


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for himself, so only notifications count."""
    monkeypatch.setattr(poll_wakeups, "SCAN_SECONDS", 3600.0)


@pytest.mark.usefixtures("blind")
async def test_a_submission_wakes_exactly_one_of_many_waiting_polls(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    polls = [pollers.poll() for _ in range(20)]
    await pollers.asleep(20)

    task_id = await kit.submit()
    done, waiting = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)

    assert [task.task_id for poll in done for task in poll.result().tasks] == [task_id]
    assert len(waiting) == 19
    assert pollers.claim_count == 21
    for poll in waiting:
        poll.cancel()


@pytest.mark.usefixtures("blind")
async def test_a_batch_wakes_as_many_polls_as_it_takes_to_carry_it_off(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    polls = [pollers.poll(wanted=5) for _ in range(10)]
    await pollers.asleep(10)

    await kit.queue.submit_many([NewTask(task_type="resize") for _ in range(12)])
    while sum(poll.done() for poll in polls) < 3:
        await asyncio.sleep(0.001)

    assert sum(len(poll.result().tasks) for poll in polls if poll.done()) == 12
    assert pollers.claim_count == 13
    for poll in polls:
        poll.cancel()


@pytest.mark.usefixtures("blind")
async def test_a_batch_that_opens_many_lanes_has_their_names_read_once(kit: Kit, pollers: Pollers) -> None:
    """Each by itself they would take all connections to the store that other calls need."""
    await kit.worker(task_types=("type-7",))
    poll = pollers.poll(task_types=("type-7",))
    await pollers.asleep(1)
    before, running = await _whole_reads(kit), asyncio.all_tasks()

    await kit.queue.submit_many([NewTask(task_type=f"type-{number}") for number in range(NEW_LANES)])

    assert len((await poll).tasks) == 1
    await asyncio.gather(*asyncio.all_tasks() - running)
    assert await _whole_reads(kit) - before < 10


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("error", [KeyError("of no kind anybody thought of"), StoreUnavailable("away")], ids=repr)
async def test_a_new_lane_whose_name_cannot_be_read_is_found_by_a_look(
    kit: Kit, pollers: Pollers, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """And what nobody foresaw is logged, not left with a job that nobody asks."""
    await kit.worker(task_types=("resize",))
    poll = pollers.poll(task_types=("resize",))
    await pollers.asleep(1)
    errors, signature = [error], ReadyLanes.signature

    async def fail_once(source: ReadyLanes, version: str, lane: str) -> str:
        if errors:
            raise errors.pop()
        return await signature(source, version, lane)

    monkeypatch.setattr(ReadyLanes, "signature", fail_once)
    with capture_logs() as logs:
        task_id = await kit.submit()
        (task,) = (await poll).tasks

    assert task.task_id == task_id
    assert [each["log_level"] for each in logs if each["event"].startswith("wake-up for a new lane failed")] == (
        ["error"] if isinstance(error, KeyError) else []
    )


async def _whole_reads(kit: Kit) -> int:
    return (await kit.client.info("commandstats")).get("cmdstat_hgetall", {"calls": 0})["calls"]


@pytest.mark.usefixtures("blind")
async def test_a_poll_of_another_type_is_left_asleep(kit: Kit, pollers: Pollers) -> None:
    await kit.worker("w1", task_types=("crawl",))
    await kit.worker("w2", task_types=("resize",))
    crawler = pollers.poll("w1", task_types=("crawl",))
    resizer = pollers.poll("w2", task_types=("resize",))
    await pollers.asleep(2)

    await kit.submit("resize")

    assert (await resizer).tasks
    assert not crawler.done()
    assert pollers.claim_count == 3
    crawler.cancel()


@pytest.mark.usefixtures("deaf")
async def test_a_lost_notification_costs_at_most_the_survey_interval(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    poll = pollers.poll()
    await pollers.asleep(1)

    await kit.submit()

    assert (await asyncio.wait_for(poll, 25)).tasks


@pytest.mark.usefixtures("blind")
async def test_a_due_delay_wakes_a_poll_without_a_survey(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    poll = pollers.poll()
    await pollers.asleep(1)

    await kit.submit(delay_ms=200)

    assert (await asyncio.wait_for(poll, 25)).tasks


@pytest.mark.usefixtures("blind")
async def test_a_lapsed_assignment_wakes_a_poll_that_was_told_when(kit: Kit, pollers: Pollers) -> None:
    await kit.worker("w1")
    await kit.worker("w2")
    task_id = await kit.submit()
    await kit.claimed("w1", assignment_ms=300)

    got = await asyncio.wait_for(pollers.poll("w2"), 25)

    assert [task.task_id for task in got.tasks] == [task_id]


@pytest.mark.usefixtures("blind")
async def test_a_cancel_wakes_the_holders_poll_with_what_to_stop(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    await kit.submit()
    held = await kit.started()
    poll = pollers.poll()
    await pollers.asleep(1)

    await kit.queue.cancel(held.task_id)

    assert [stop.task_id for stop in (await asyncio.wait_for(poll, 25)).stops] == [held.task_id]


async def test_what_to_stop_ends_a_wait_once_and_comes_with_every_answer(kit: Kit, pollers: Pollers) -> None:
    await kit.worker(capacity=5)
    await kit.submit()
    held = await kit.started()
    await kit.queue.cancel(held.task_id)

    first = await asyncio.wait_for(pollers.poll(), 25)
    waiting = pollers.poll()
    await asyncio.wait_for(pollers.asleep(1), 25)
    await kit.submit()
    second = await asyncio.wait_for(waiting, 25)

    assert [(len(got.tasks), len(got.stops)) for got in (first, second)] == [(0, 1), (1, 1)]


@pytest.mark.usefixtures("blind")
async def test_a_resumed_queue_wakes_its_polls(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    await kit.controls.pause()
    await kit.submit()
    poll = pollers.poll()
    await pollers.asleep(1)

    await kit.controls.resume()

    assert (await asyncio.wait_for(poll, 25)).tasks


@pytest.mark.usefixtures("blind")
async def test_a_freed_slot_wakes_a_poll(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    await kit.controls.limit("resize", max_executing=1)
    await kit.submit()
    await kit.submit()
    first = await kit.started()
    poll = pollers.poll()
    await pollers.asleep(1)

    await kit.complete(first)

    assert (await asyncio.wait_for(poll, 25)).tasks


@pytest.mark.usefixtures("blind")
async def test_a_refilled_rate_wakes_a_poll(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    await kit.controls.limit("resize", tasks_per_second=4)
    await kit.queue.submit_many([NewTask(task_type="resize") for _ in range(5)])
    assert len((await kit.queue.claim("w1", 5)).tasks) == 4

    assert (await asyncio.wait_for(pollers.poll(), 25)).tasks


@pytest.mark.usefixtures("blind")
async def test_a_timer_that_fires_a_moment_early_does_not_cost_the_next_instant(
    kit: Kit, pollers: Pollers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under uvloop, which counts in milliseconds."""
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def early(when: float, callback: Any, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        is_due_timer = "wake" in getattr(callback, "__name__", "")
        return call_at(when - 0.15 if is_due_timer else when, callback, *arguments, **options)

    monkeypatch.setattr(loop, "call_at", early)
    monkeypatch.setattr(pollers.wakeups, "_scan", asyncio.Event().wait)
    await kit.worker()
    await kit.controls.limit("resize", tasks_per_second=4)
    await kit.queue.submit_many([NewTask(task_type="resize") for _ in range(5)])
    assert len((await kit.queue.claim("w1", 5)).tasks) == 4

    assert (await asyncio.wait_for(pollers.poll(), 25)).tasks


@pytest.mark.usefixtures("blind")
async def test_every_refill_of_a_rate_wakes_another_poll(kit: Kit, pollers: Pollers) -> None:
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", tasks_per_second=10)
    await kit.queue.submit_many([NewTask(task_type="resize") for _ in range(18)])
    assert len((await kit.queue.claim("w1", 10)).tasks) == 10

    got = await asyncio.wait_for(asyncio.gather(*(pollers.poll() for _ in range(8))), 25)

    assert [len(each.tasks) for each in got] == [1] * 8


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("held_by", ["rate", "pause"])
async def test_what_a_rule_held_back_wakes_a_poll_that_may_have_it_not_the_first(
    kit: Kit, pollers: Pollers, held_by: str
) -> None:
    await kit.worker("w1", task_types=("crawl",))
    await kit.worker("w2", task_types=("resize",))
    if held_by == "rate":
        await kit.controls.limit("resize", tasks_per_second=4)
        await kit.queue.submit_many([NewTask(task_type="resize") for _ in range(5)])
        assert len((await kit.queue.claim("w2", 5)).tasks) == 4
    else:
        await kit.controls.pause("resize", resume_at_ms=(await kit.insight.stats()).now_ms + 300)
        await kit.submit("resize")
    crawler = pollers.poll("w1", task_types=("crawl",))
    await pollers.asleep(1)

    assert (await asyncio.wait_for(pollers.poll("w2", task_types=("resize",)), 25)).tasks
    crawler.cancel()


async def test_polls_of_a_paused_queue_are_left_in_peace(
    kit: Kit, pollers: Pollers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll_wakeups, "SCAN_SECONDS", 0.02)
    await kit.worker()
    await kit.controls.pause()
    await kit.queue.submit_many([NewTask(task_type="resize") for _ in range(50)])

    await asyncio.gather(*(pollers.poll(wait=0.5) for _ in range(10)))

    assert pollers.claim_count <= 20


@pytest.mark.usefixtures("blind")
async def test_an_unhealthy_worker_does_not_use_up_a_wake_up(kit: Kit, pollers: Pollers) -> None:
    await kit.worker("ill")
    await kit.worker("well")
    await kit.fleet.set_health("ill", False)
    ill = pollers.poll("ill")
    await pollers.asleep(1)
    well = pollers.poll("well")
    await pollers.asleep(2)

    await kit.submit()

    assert (await asyncio.wait_for(well, 25)).tasks
    assert not ill.done()
    ill.cancel()


@pytest.mark.usefixtures("blind")
async def test_a_worker_held_back_from_a_type_does_not_use_up_its_wake_up(kit: Kit, pollers: Pollers) -> None:
    await kit.worker("broken")
    await kit.worker("well")
    await fail_often(kit, "broken")
    broken = pollers.poll("broken")
    await pollers.asleep(1)
    well = pollers.poll("well")
    await pollers.asleep(2)

    await kit.submit()

    assert (await asyncio.wait_for(well, 25)).tasks
    assert not broken.done()
    broken.cancel()


class TestShortCircuits:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(circuit=Circuit(open_ms=500))

    @pytest.mark.usefixtures("blind", "deaf")
    async def test_the_end_of_its_circuit_wakes_the_worker_it_holds_back(self, kit: Kit, pollers: Pollers) -> None:
        await kit.worker("idle", task_types=("other",))
        await kit.worker("broken")
        await fail_often(kit, "broken")
        await kit.submit()
        idle = pollers.poll("idle")
        await pollers.asleep(1)
        broken = pollers.poll("broken")
        await pollers.asleep(2)

        ends_at_ms = (await kit.queue.claim("broken", 1)).circuits[0].until_ms
        got = await asyncio.wait_for(broken, 25)

        assert got.tasks
        assert got.now_ms >= (ends_at_ms or 0)
        idle.cancel()


async def fail_often(kit: Kit, worker_id: str) -> None:
    for _ in range(5):
        await kit.submit(max_retries=0)
        await kit.fail(await kit.started(worker_id), worker_id)


async def test_a_poll_that_ends_while_claiming_returns_the_claim(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    task_id = await kit.submit()
    waiting = WaitingPoll("w1", "*|", 1)

    async def claim() -> Claim:
        got = await kit.queue.claim("w1", 1)
        waiting.end()
        return got

    got = await asyncio.wait_for(pollers.wakeups.poll(waiting, claim, LONG), 25)

    assert [task.task_id for task in got.tasks] == [task_id]


@pytest.mark.usefixtures("blind")
async def test_a_poll_that_ends_while_it_waits_claims_nothing_more(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    waiting, claim_count = WaitingPoll("w1", "*|", 1), 0

    async def claim() -> Claim:
        nonlocal claim_count
        claim_count += 1
        return await kit.queue.claim("w1", 1)

    poll = asyncio.create_task(pollers.wakeups.poll(waiting, claim, LONG))
    await pollers.asleep(1)
    waiting.end()
    await kit.submit()

    assert ((await asyncio.wait_for(poll, 25)).tasks, claim_count) == ((), 1)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set whenever somebody may have been woken for work."""
    heard, wake_for = asyncio.Event(), WaitingPolls.wake_for

    def wake_and_say_so(self: WaitingPolls, signature: str, ready_count: int) -> int:
        woken = wake_for(self, signature, ready_count)
        heard.set()
        return woken

    monkeypatch.setattr(WaitingPolls, "wake_for", wake_and_say_so)
    return heard


@pytest.mark.usefixtures("blind")
async def test_work_that_arrives_during_the_first_look_of_an_unknown_worker_is_not_missed(
    kit: Kit, pollers: Pollers, heard: asyncio.Event
) -> None:
    """The service learns what a worker serves from its first claim, and hears of work before that claim's answer."""
    await kit.worker()
    looks = 0

    async def slow_claim() -> Claim:
        nonlocal looks
        looks += 1
        got = await kit.queue.claim("w1", 1)
        if looks == 1:
            await kit.submit()
            await asyncio.wait_for(heard.wait(), 25)
        return got

    waiter = WaitingPoll("w1", "", 1)
    poll = pollers.wakeups.poll(waiter, slow_claim, LONG)
    got = await asyncio.wait_for(poll, 25)

    assert (len(got.tasks), looks) == (1, 2)


@pytest.mark.usefixtures("blind")
async def test_a_rule_that_changes_while_a_poll_looks_is_not_missed(
    kit: Kit, pollers: Pollers, heard: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script may have answered before it changed."""
    await kit.worker()
    await kit.controls.pause()
    await kit.submit()
    await asyncio.wait_for(heard.wait(), 25)
    looks, told, wake_claiming = 0, asyncio.Event(), WaitingPolls.wake_claiming

    def wake_and_say_so(self: WaitingPolls) -> None:
        wake_claiming(self)
        told.set()

    monkeypatch.setattr(WaitingPolls, "wake_claiming", wake_and_say_so)

    async def slow_claim() -> Claim:
        nonlocal looks
        looks += 1
        got = await kit.queue.claim("w1", 1)
        if looks == 1:
            await kit.controls.resume()
            await asyncio.wait_for(told.wait(), 25)
            while pollers.wakeups._scan_requested.is_set():  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.001)
        return got

    poll = pollers.wakeups.poll(WaitingPoll("w1", "*|", 1), slow_claim, LONG)

    assert (len((await asyncio.wait_for(poll, 25)).tasks), looks) == (1, 2)


@pytest.mark.usefixtures("blind")
async def test_a_wake_up_for_a_poll_that_leaves_is_passed_on(kit: Kit, pollers: Pollers, heard: asyncio.Event) -> None:
    await kit.worker()
    looks = 0

    async def claim_while_more_arrives() -> Claim:
        nonlocal looks
        looks += 1
        got = await kit.queue.claim("w1", 1)
        if got.tasks:
            heard.clear()
            await kit.submit()
            await asyncio.wait_for(heard.wait(), 25)
        return got

    first = asyncio.create_task(
        pollers.wakeups.poll(
            WaitingPoll("w1", "*|", 1),
            claim_while_more_arrives,
            LONG,
        )
    )
    await pollers.asleep(1)
    second = pollers.poll()
    await pollers.asleep(2)

    await kit.submit()

    assert len((await asyncio.wait_for(first, 25)).tasks) == 1
    assert len((await asyncio.wait_for(second, 25)).tasks) == 1


async def test_closing_answers_every_waiting_poll_empty(kit: Kit, pollers: Pollers) -> None:
    await kit.worker()
    polls = [pollers.poll() for _ in range(5)]
    await pollers.asleep(5)

    pollers.wakeups.close()

    assert [(await poll).tasks for poll in polls] == [()] * 5


async def test_a_thousand_waiting_polls_hold_few_connections(kit: Kit, pollers: Pollers) -> None:
    """Others may be connected to the same store: theirs were there before."""
    await kit.worker()
    before = {entry["id"] for entry in await kit.client.client_list()}
    polls = [pollers.poll() for _ in range(1000)]
    await pollers.asleep(1000)

    connections = [entry for entry in await kit.client.client_list() if entry["id"] not in before]

    assert len(connections) <= 10
    pollers.wakeups.close()
    await asyncio.gather(*polls)


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("part", ["7:many", "due:soon", "due:1.5", "news:of:a:kind", "bare", ":", "paused:3"])
async def test_a_part_of_a_later_version_is_passed_over_and_the_rest_is_heard(
    kit: Kit, pollers: Pollers, part: str
) -> None:
    await kit.worker()
    poll = pollers.poll()
    await pollers.asleep(1)

    await kit.client.publish(kit.keys.wake_channel, f"0 {part} worker:w1")

    async with asyncio.timeout(5):
        while pollers.claim_count < 2:
            await asyncio.sleep(0.001)
    poll.cancel()
