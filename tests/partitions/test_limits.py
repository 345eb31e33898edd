"""Pauses are in force in all partitions; limits are the whole queue's, wherever its tasks lie."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.contract.situations import complete_all, held, submit_count
from tests.kit import Kit, make_kit
from tests.stores import StoreUnderTest
from tideq.queue_core.controls import Limits
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.partitioning.ledger import Ledger
from tideq.queue_core.polls.ready_lanes import ReadyLanes
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.task import Claim
from tideq.queue_core.task_id import partition_of


@pytest.fixture
def partitions() -> tuple[int, ...]:
    return (8,)


async def fill(kit: Kit, count: int = 40, task_type: str = "resize") -> None:
    for _ in range(count):
        await kit.submit(task_type)
    depths = [(await part.insight.backlog([task_type])).ready for part in kit.engine.parts]
    assert min(depths) > 0


async def claimed_count(kit: Kit, wanted: int = 100) -> int:
    return len((await kit.queue.claim("w1", wanted)).tasks)


async def executing_count(kit: Kit) -> int:
    states = (await kit.insight.stats()).by_state
    return states["assigned"] + states["executing"]


async def test_a_pause_holds_everywhere_and_ends_everywhere(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.pause()

    assert await claimed_count(kit) == 0

    await kit.controls.resume()
    assert await claimed_count(kit) == 40


async def test_slots_are_the_queues_wherever_its_tasks_lie(kit: Kit) -> None:
    await submit_count(kit, 20)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=10)

    first = await kit.queue.claim("w1", 100)

    assert len({partition_of(task.task_id) for task in first.tasks}) == 1
    assert (len(first.tasks), await claimed_count(kit)) == (10, 0)
    assert (await kit.insight.stats()).controls["resize"].limits == Limits(None, 10)


@pytest.mark.parametrize("scope", [None, "resize"], ids=["whole-queue", "one-type"])
async def test_one_slot_lets_every_partition_have_its_turn(kit: Kit, scope: str | None) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit(scope, max_executing=1)

    places: set[int] = set()
    for _ in range(40):
        (task,) = (await kit.queue.claim("w1", 5)).tasks
        assert await claimed_count(kit) == 0
        await kit.start(task)
        await kit.complete(task)
        places.add(partition_of(task.task_id))

    assert (places, (await kit.insight.stats()).total_depth) == (set(range(8)), 0)


async def test_workers_that_claim_at_once_never_pass_the_slots_and_never_stall(kit: Kit, store: StoreUnderTest) -> None:
    """Each of them as a process of its own: with a ledger's client, and memories, of its own."""
    await fill(kit, 60)
    clients = [store.client() for _ in range(4)]
    kits = [await make_kit(client, kit.settings.queue_name, kit.settings) for client in clients]
    await kit.controls.limit("resize", max_executing=3)
    most, done = 0, 0

    async def work(own: Kit, worker_id: str) -> None:
        nonlocal most, done
        await own.worker(worker_id, capacity=10)
        async with asyncio.timeout(30):
            while done < 60:
                tasks = (await own.queue.claim(worker_id, 2)).tasks
                most = max(most, await executing_count(own))
                if tasks:
                    await own.attempts.start(worker_id, held(*tasks))
                    await complete_all(own, list(tasks), worker_id)
                    done += len(tasks)

    await asyncio.gather(*(work(own, f"w{number}") for number, own in enumerate(kits)))

    assert (most, done) == (3, 60)
    for client in clients:
        await client.aclose()


async def test_a_look_from_before_a_claim_that_has_ended_gets_no_slot_of_it(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=1)
    looked_ms, uses = await uses_of(kit)
    task = await kit.claimed()

    stale = await ledger_of(kit).grant(uses, {"resize": 1}, looked_ms)

    assert stale.permits["resize"].granted == 0
    await kit.start(task)
    await kit.complete(task)
    assert await claimed_count(kit, 1) == 1


async def test_slots_of_a_process_that_died_between_permit_and_claim_come_back(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=2)
    looked_ms, uses = await uses_of(kit)
    await ledger_of(kit).grant(uses, {"resize": 2}, looked_ms)

    assert await claimed_count(kit) == 0
    await kit.clock.advance(15_001)
    assert await claimed_count(kit) == 2


async def test_a_process_that_slept_on_its_permits_claims_nothing_with_them(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=2)
    grant = Ledger.grant

    async def sleepy(self: Ledger, *arguments: Any) -> Any:
        granted = await grant(self, *arguments)
        await kit.clock.advance(5_001)
        return granted

    monkeypatch.setattr(Ledger, "grant", sleepy)

    assert await claimed_count(kit) == 0


async def test_a_look_that_is_too_old_is_taken_anew(kit: Kit) -> None:
    await fill(kit)
    await kit.controls.limit("resize", max_executing=2)
    looked_ms, uses = await uses_of(kit)

    await kit.clock.advance(5_001)

    (permit,) = (await ledger_of(kit).grant(uses, {"resize": 2}, looked_ms)).permits.values()
    assert (permit.granted, permit.is_uncertain) == (0, True)


async def test_a_rate_lets_out_the_same_wherever_the_tasks_lie(kit: Kit) -> None:
    """A batch lies in one partition: a burst of one second's worth, and then what each second brings."""
    for _ in range(3):
        await submit_count(kit, 600)
    await kit.worker(capacity=10_000)
    await kit.controls.limit("resize", tasks_per_second=100)
    first = await kit.queue.claim("w1", 1_000)
    taken, last = len(first.tasks), first

    for _ in range(24):
        await kit.clock.advance(500)
        last = await kit.queue.claim("w1", 1_000)
        taken += len(last.tasks)

    due = 100 + (last.now_ms - first.now_ms) / 10
    assert 0.98 * due <= taken <= due + 5
    assert taken >= 1_280


async def test_a_rate_is_never_passed_by_several_workers(kit: Kit) -> None:
    await fill(kit, 80)
    for number in range(4):
        await kit.worker(f"w{number}", capacity=100)
    await kit.controls.limit("resize", tasks_per_second=20)
    before = (await kit.insight.stats()).now_ms

    claims = await asyncio.gather(*(kit.queue.claim(f"w{number}", 100) for number in range(4)))

    took_ms = max(claim.now_ms for claim in claims) - before
    assert 20 <= sum(len(claim.tasks) for claim in claims) <= 20 + took_ms / 50 + 1


async def test_limited_types_leave_the_others_their_work(kit: Kit) -> None:
    """Also where the best of every partition are of types that have nothing left."""
    for task_type in ("a", "b", "c", "d", "e"):
        for _ in range(16):
            await kit.submit(task_type, priority="high")
        await kit.controls.limit(task_type, max_executing=0)
    await fill(kit, 16)
    await kit.worker(capacity=100)

    claim = await kit.queue.claim("w1", 3)

    assert [task.definition.task_type for task in claim.tasks] == ["resize"] * 3


async def test_what_a_limit_holds_back_wakes_nobody_until_it_lets_out_more(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", tasks_per_second=0.5)
    full = await survey(kit)
    claim = await kit.queue.claim("w1", 10)
    spent = await survey(kit)

    assert (full[0], len(claim.tasks), spent[0]) == ({"resize|": 1}, 1, {})
    assert spent[1] is not None
    assert 0 < spent[1] <= 2_000
    assert (await kit.queue.claim("w1", 1)).retry_at_ms is not None


async def test_without_the_ledger_what_is_not_limited_goes_on(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(kit, 40, "resize")
    await fill(kit, 40, "crop")
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", tasks_per_second=100)
    refuse_calls(monkeypatch, kit.engine.parts[0].scripts, lambda name: name in ("grant", "settle_grant"))

    claim = await kit.queue.claim("w1", 10)

    assert [task.definition.task_type for task in claim.tasks] == ["crop"] * 10


async def fill_behind_the_first(kit: Kit, count: int = 40) -> None:
    """The oldest task lies in another partition than the ledger, which is not to be away."""
    while partition_of(oldest := await kit.submit()) == 0:
        await kit.queue.cancel(oldest)
    await fill(kit, count - 1)


async def begun_while_away(kit: Kit, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, partition: int) -> Kit:
    """A process that has never seen one of the partitions."""
    begun = await make_kit(store.client(), kit.settings.queue_name, kit.settings)
    refuse_calls(monkeypatch, begun.engine.parts[partition].scripts, lambda _: True)
    return begun


async def test_what_a_partition_that_is_away_runs_counts_for_processes_that_never_saw_it(
    kit: Kit, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_behind_the_first(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=2)
    first = partition_of((await kit.claimed()).task_id)
    begun = await begun_while_away(kit, store, monkeypatch, first)

    assert await claimed_count(begun) == 1
    await kit.clock.advance(15_001)
    assert await claimed_count(begun) == 0
    assert await executing_count(kit) == 2
    await begun.client.aclose()


async def test_slots_wait_for_a_partition_nobody_ever_saw_and_nothing_else_does(
    kit: Kit, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_behind_the_first(kit)
    await kit.worker(capacity=100)
    first = partition_of((await kit.claimed()).task_id)
    await kit.controls.limit("resize", max_executing=1)
    await fill(kit, 40, "crop")
    await fill(kit, 40, "crawl")
    await kit.controls.limit("crawl", tasks_per_second=1_000)
    begun = await begun_while_away(kit, store, monkeypatch, first)

    claim = await begun.queue.claim("w1", 100)

    assert Counter(task.definition.task_type for task in claim.tasks) == {"crop": 35, "crawl": 35}
    assert await claimed_count(kit) == 10, "the rest of what is not limited by slots, and none of what is"
    await begun.client.aclose()


async def test_a_token_that_was_given_back_in_any_partition_is_had_again(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", tasks_per_second=0.01)
    task = await kit.claimed()
    assert await claimed_count(kit) == 0

    await kit.attempts.release("w1", held(task))

    assert [each.task_id for each in (await kit.queue.claim("w1", 5)).tasks] == [task.task_id]
    assert await claimed_count(kit) == 0


async def test_a_queue_without_limits_asks_no_ledger(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.pause("crop")
    called: list[str] = []
    for part in kit.engine.parts:
        refuse_calls(monkeypatch, part.scripts, lambda name: called.append(name) is not None)

    assert await claimed_count(kit, 10) == 10
    assert set(called) == {"peek", "claim"}


async def test_a_lifted_limit_is_lifted_everywhere(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=4)
    await kit.controls.limit("resize")

    assert await claimed_count(kit) == 40
    assert [await part.controls.rules() for part in kit.engine.parts] == [{}] * 8


async def test_explain_tells_the_limit_as_it_was_set_and_what_it_has_left(kit: Kit) -> None:
    await fill(kit, 24)
    task_id = await kit.submit()
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=2)
    free = await kit.insight.explain(task_id)
    await kit.queue.claim("w1", 10)

    full = await kit.insight.explain(task_id)

    assert free.type_control.limits == full.type_control.limits == Limits(None, 2)
    assert (free.allowed_now, free.type_left, full.allowed_now, full.allowed_at_ms) == (2, 2, 0, None)


async def test_a_worker_is_counted_once_and_what_it_holds_is_added_up(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=50)
    await kit.queue.claim("w1", 30)

    workers = (await kit.insight.stats()).workers
    assert (workers.active, workers.total_capacity, workers.used_capacity) == (1, 50, 30)
    (member,) = (await kit.fleet.members()).members
    assert member.held_count == 30
    assert await kit.fleet.remove("w1") == 30
    assert (await kit.fleet.members()).members == ()


class TestManyPartitions:
    """More than a claim looks at."""

    @pytest.fixture
    def partitions(self) -> tuple[int, ...]:
        return (12,)

    async def test_slots_are_counted_in_those_a_claim_would_not_look_at(self, kit: Kit) -> None:
        await fill(kit, 120)
        await kit.worker(capacity=1_000)
        await kit.controls.limit("resize", max_executing=12)

        taken = [await claimed_count(kit, 1) for _ in range(40)]

        assert sum(taken) == 12

    async def test_a_repeated_poll_is_answered_the_same_wherever_its_tasks_lie(self, kit: Kit) -> None:
        await fill(kit, 120)
        await kit.worker(capacity=1_000)
        answers: list[tuple[Claim, Claim]] = []

        for number in range(12):
            first = await kit.queue.claim("w1", 1, poll_id=f"p{number}")
            answers.append((first, await kit.queue.claim("w1", 1, poll_id=f"p{number}")))

        assert all(first.tasks == again.tasks for first, again in answers)
        assert await executing_count(kit) == 12


def ledger_of(kit: Kit) -> Ledger:
    assert kit.engine.ledger is not None
    return kit.engine.ledger


async def uses_of(kit: Kit) -> tuple[int, dict[int, Any]]:
    told = [await part.partition.usage() for part in kit.engine.parts]
    return told[0][0], {number: uses for number, (_, uses) in enumerate(told)}


async def survey(kit: Kit) -> tuple[dict[str, int], int | None]:
    """What is told to those who wait: how many are ready, and how long until there may be more."""
    sources = [ReadyLanes(part.scripts, kit.client, part.keys) for part in kit.engine.parts]
    surveys = await ledger_of(kit).apply_limits({number: await each.scan(100) for number, each in enumerate(sources)})
    ready: dict[str, int] = {}
    for signature, count in (each for told in surveys for each in told.ready):
        ready[signature] = ready.get(signature, 0) + count
    waits = [told.next_at_ms - told.now_ms for told in surveys if told.next_at_ms is not None]
    return ready, min(waits, default=None)


def refuse_calls(monkeypatch: pytest.MonkeyPatch, scripts: Scripts, is_refused: Callable[[str], bool]) -> None:
    call: Callable[..., Awaitable[Any]] = scripts.call

    async def refusing(name: str, /, *arguments: Any, **named: Any) -> Any:
        if is_refused(name):
            raise StoreUnavailable("gone", is_untouched=True)
        return await call(name, *arguments, **named)

    monkeypatch.setattr(scripts, "call", refusing)
