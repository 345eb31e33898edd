"""Pauses and limits that were set or lifted while a partition was away: once it is back they hold there too."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator

import pytest

from tests.kit import Kit, make_kit
from tests.partitions.test_limits import claimed_count, fill, refuse_calls
from tests.stores import StoreUnderTest
from tideq.queue_core import controls
from tideq.queue_core.duties import Duties
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.task_id import partition_of

AWAY = 5


@pytest.fixture
def partitions() -> tuple[int, ...]:
    return (8,)


@contextlib.contextmanager
def away(kit: Kit, *partitions: int) -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for partition in partitions:
            refuse_calls(patch, kit.engine.parts[partition].scripts, lambda _: True)
        yield


@contextlib.asynccontextmanager
async def aligning(kit: Kit) -> AsyncGenerator[Duties]:
    duties = Duties()
    duty = duties.start("alignment", kit.controls.keep_aligned)
    try:
        yield duties
    finally:
        await duties.stop(duty)


async def rules(kit: Kit, field: str) -> set[str]:
    return {(await part.controls.rules()).get(field, "") for part in kit.engine.parts}


async def until_agreed(kit: Kit, field: str, is_wanted: Callable[[str], bool] = bool) -> None:
    async with asyncio.timeout(15):
        while not all(map(is_wanted, await rules(kit, field))) or len(await rules(kit, field)) > 1:
            await asyncio.sleep(0.02)


async def test_slots_set_while_a_partition_is_away_let_out_work_again_once_it_is_back(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    async with aligning(kit):
        with away(kit, AWAY):
            await kit.controls.limit("resize", max_executing=3)
            assert await claimed_count(kit) == 0, "what runs in a partition that nobody saw under the limit is unknown"
        await until_agreed(kit, "max:resize")

        assert await claimed_count(kit) == 3
        assert await claimed_count(kit) == 0


async def test_a_limit_lifted_while_a_partition_is_away_is_lifted_there_once_it_is_back(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=1, tasks_per_second=0.001)
    async with aligning(kit):
        with away(kit, AWAY):
            await kit.controls.limit("resize")
        for field in ("max:resize", "rate:resize"):
            await until_agreed(kit, field, lambda rule: rule == "")

        assert [await part.controls.rules() for part in kit.engine.parts] == [{}] * 8
        assert await claimed_count(kit) == 40


async def test_a_pause_and_its_end_reach_a_partition_that_was_away(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    async with aligning(kit):
        with away(kit, AWAY):
            await kit.controls.pause("resize", reason="moving")
        await until_agreed(kit, "pause:resize")
        assert await claimed_count(kit) == 0
        with away(kit, AWAY):
            await kit.controls.resume("resize")
        await until_agreed(kit, "pause:resize", lambda rule: rule == "")

        assert await claimed_count(kit) == 40


async def test_what_was_said_last_holds_however_few_partitions_heard_it(kit: Kit) -> None:
    """Of each rule by itself: one that missed a pause may have heard of the limit after it."""
    others = [each for each in range(8) if each != AWAY]
    await kit.controls.limit("resize", max_executing=9)
    with away(kit, AWAY):
        await kit.controls.pause("resize", reason="moving")
    with away(kit, *others):
        await kit.controls.limit("resize", max_executing=2)

    await kit.controls.align()

    assert await rules(kit, "max:resize") == {"2"}
    assert {rule.rpartition("|")[2] for rule in await rules(kit, "pause:resize")} == {"moving"}


async def test_an_order_that_arrives_after_a_later_one_changes_nothing(kit: Kit) -> None:
    scripts = kit.engine.parts[AWAY].scripts
    await controls.write_rules(scripts, "resize", {"pause": "||later"}, {"pause": 2_000})

    await controls.write_rules(scripts, "resize", {"pause": "||earlier"}, {"pause": 1_999})
    await controls.write_rules(scripts, "resize", {"pause": ""}, {"pause": 1_999})

    assert (await kit.engine.parts[AWAY].controls.rules())["pause:resize"] == "||later"


async def test_what_a_process_that_stopped_before_it_was_in_force_had_set_another_one_completes(
    kit: Kit, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controls, "ALIGN_SECONDS", 0.05)
    other = await make_kit(store.client(), kit.settings.queue_name, kit.settings, sends_flags=store.sends_flags)
    async with aligning(other):
        with away(kit, AWAY):
            await kit.controls.limit("resize", max_executing=3)
        await until_agreed(kit, "max:resize")
    await other.client.aclose()


async def test_a_limit_that_no_partition_heard_of_is_refused(kit: Kit) -> None:
    with away(kit, *range(8)), pytest.raises(StoreUnavailable):
        await kit.controls.limit("resize", max_executing=3)

    assert await rules(kit, "max:resize") == {""}


async def test_partitions_that_answer_agree_while_another_is_away(kit: Kit) -> None:
    async with aligning(kit) as duties:
        with away(kit, AWAY):
            with away(kit, 3):
                await kit.controls.pause("resize")
            async with asyncio.timeout(15):
                while not (await kit.engine.parts[3].controls.rules()).get("pause:resize"):
                    await asyncio.sleep(0.02)
            assert duties.error_of("alignment")
        async with asyncio.timeout(15):
            while duties.error_of("alignment"):
                await asyncio.sleep(0.02)


async def test_slots_that_are_set_again_wait_until_every_partition_was_seen_again(kit: Kit) -> None:
    """What ran when the limit was lifted says nothing of what runs now."""
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=2)
    place = partition_of((await kit.claimed()).task_id)
    await kit.controls.limit("resize")
    assert await claimed_count(kit) == 39
    await fill(kit)

    await kit.controls.limit("resize", max_executing=60)
    with away(kit, place):
        assert await claimed_count(kit) == 0
    async with asyncio.timeout(15):
        while not (count := await claimed_count(kit)):
            await asyncio.sleep(0.05)
    assert count == 20


async def test_a_rule_lifted_long_ago_leaves_no_instant(kit: Kit) -> None:
    part = kit.engine.parts[0]
    await kit.controls.pause("resize")
    await kit.controls.pause("crop")
    await kit.controls.resume("resize")
    await kit.controls.resume("crop")
    assert set((await controls.read_rules(part.scripts)).instants) == {"pause:resize", "pause:crop"}

    await kit.clock.advance(31 * 86_400_000)
    await kit.controls.pause("crop")

    assert set((await controls.read_rules(part.scripts)).instants) == {"pause:crop"}
