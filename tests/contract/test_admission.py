"""admission: which submissions are refused to protect the service. A refused one leaves no trace."""

import msgspec
import pytest

from tests.contract.situations import submit_count
from tests.kit import Kit
from tideq.queue_core.errors import BatchAboveBurst, OutboxFull, Overloaded, QueueFull, StoreFull, TooManySubmissions
from tideq.queue_core.settings import DEFAULT_PRIORITIES, Admission, Priority, QueueSettings
from tideq.queue_core.task import NewTask

EXPRESS = Priority(offset_ms=50_000_000, max_retries=1, timeout_ms=1_000)
"""Above the default level and below the most urgent one."""
SAID = {
    2: "(TIDEQ_DEPTH_REFUSE_LOW) only tasks of the default priority or a more urgent one",
    4: "(TIDEQ_DEPTH_REFUSE_MEDIUM) only tasks of the most urgent priority",
    6: "(TIDEQ_DEPTH_REFUSE_ALL) only tasks of the clients in TIDEQ_DEPTH_EXEMPT_CLIENTS",
}
"""By the depths below."""


def admitting(**limits: object) -> QueueSettings:
    levels = DEFAULT_PRIORITIES | {"express": EXPRESS}
    admission = msgspec.structs.replace(Admission(), **limits)
    return QueueSettings(admission=admission, priorities=levels)


class TestDepth:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return admitting(soft_depth=2, high_only_depth=4, max_depth=6, listed_clients=("vip",))

    async def test_submit_up_to_the_soft_depth_is_taken(self, kit: Kit) -> None:
        await submit_count(kit, 2, priority="low")

        assert (await kit.insight.stats()).total_depth == 2

    async def test_a_batch_is_as_urgent_as_its_least_urgent_task(self, kit: Kit) -> None:
        await submit_count(kit, 2)

        with pytest.raises(QueueFull) as refusal:
            await kit.queue.submit_many([NewTask("resize", priority="high"), NewTask("resize", priority="low")])

        assert (refusal.value.stage, (await kit.insight.stats()).total_depth) == ("soft", 2)

    @pytest.mark.parametrize(
        ("depth", "priority", "limit"),
        [
            (2, "low", 2),
            (4, None, 4),
            (4, "express", 4),
            (4, "medium", 4),
            (4, "low", 4),
            (6, "high", 6),
            (6, "express", 6),
            (6, "low", 6),
        ],
    )
    async def test_submit_beyond_the_depth_for_its_priority_is_refused_by_the_stage_that_says_what_it_takes(
        self, kit: Kit, depth: int, priority: str | None, limit: int
    ) -> None:
        await submit_count(kit, depth, client_id="vip")
        before = await kit.dump()

        with pytest.raises(QueueFull) as refusal:
            await kit.submit(priority=priority)

        assert (refusal.value.depth, refusal.value.limit) == (depth, limit)
        assert str(refusal.value) == f"{depth} tasks wait; beyond {limit} {SAID[limit]} are accepted"
        assert refusal.value.retry_after_ms > 0
        assert await kit.dump() == before

    @pytest.mark.parametrize(
        ("depth", "fields"),
        [
            (2, {}),
            (2, {"priority": "medium"}),
            (3, {"priority": "express"}),
            (4, {"priority": "high"}),
            (5, {"priority": "high"}),
            (2, {"client_id": "vip"}),
            (6, {"client_id": "vip", "priority": "low"}),
        ],
    )
    async def test_submit_of_what_the_depth_spares_is_taken(self, kit: Kit, depth: int, fields: dict[str, str]) -> None:
        await submit_count(kit, depth, client_id="vip")

        await kit.submit(**fields)

        assert (await kit.insight.stats()).total_depth == depth + 1

    async def test_submit_of_a_batch_that_would_pass_the_depth_takes_none(self, kit: Kit) -> None:
        before = await kit.dump()

        with pytest.raises(QueueFull):
            await submit_count(kit, 3, "never-seen", priority="low")

        assert await kit.dump() == before

    async def test_submit_is_taken_again_once_tasks_are_assigned(self, kit: Kit) -> None:
        await submit_count(kit, 2)
        await kit.worker()

        await kit.queue.claim("w1", 1)
        await kit.submit(priority="low")

        assert (await kit.insight.stats()).total_depth == 2

    async def test_submit_of_a_known_key_is_answered_however_deep_the_queue(self, kit: Kit) -> None:
        task_id = await kit.submit(idempotency_key="k")
        await submit_count(kit, 6, client_id="vip")

        assert await kit.submit(idempotency_key="k") == task_id


class TestClientRate:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return admitting(client_rate_per_second=0.5, client_burst=3)

    async def test_submit_beyond_the_burst_is_refused(self, kit: Kit) -> None:
        await submit_count(kit, 3)
        before = await kit.dump()

        with pytest.raises(TooManySubmissions) as refusal:
            await kit.submit()

        assert refusal.value.client_id == "anonymous"
        assert 0 < refusal.value.retry_after_ms <= 2_000
        assert await kit.dump() == before

    async def test_submit_after_the_time_told_is_taken_once(self, kit: Kit) -> None:
        await submit_count(kit, 3)
        with pytest.raises(TooManySubmissions) as refusal:
            await kit.submit()

        await kit.clock.advance(refusal.value.retry_after_ms)
        await kit.submit()

        with pytest.raises(TooManySubmissions):
            await kit.submit()

    async def test_submit_by_another_client_has_its_own_bucket(self, kit: Kit) -> None:
        await submit_count(kit, 3)

        assert len(await submit_count(kit, 3, client_id="other")) == 3

    async def test_submit_of_a_known_key_costs_no_token(self, kit: Kit) -> None:
        for _ in range(5):
            await kit.submit(idempotency_key="k")

        assert len(await submit_count(kit, 2)) == 2

    async def test_submit_of_a_batch_larger_than_the_bucket_takes_none(self, kit: Kit) -> None:
        before = await kit.dump()

        with pytest.raises(BatchAboveBurst, match="4 new tasks at once; a client may submit at most 3") as refusal:
            await submit_count(kit, 4)

        assert not isinstance(refusal.value, Overloaded), "to try again would be refused for ever"
        assert await kit.dump() == before

    async def test_submit_of_a_known_batch_larger_than_the_bucket_is_answered(self, kit: Kit) -> None:
        """What is known costs nothing, however small the bucket has become."""
        for number in range(3):
            await kit.submit(idempotency_key=str(number))

        tasks = [NewTask(task_type="resize", idempotency_key=str(number % 3)) for number in range(6)]

        assert not any(answer.is_new for answer in await kit.queue.submit_many(tasks))


class TestOutbox:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return admitting(max_outbox_entries=2)

    async def test_submit_when_history_is_too_far_behind_is_refused(self, kit: Kit) -> None:
        await kit.submit()
        await kit.submit()
        before = await kit.dump()

        with pytest.raises(OutboxFull) as refusal:
            await kit.submit(priority="high")

        assert (refusal.value.length, refusal.value.limit) == (2, 2)
        assert await kit.dump() == before

    async def test_work_goes_on_when_history_is_too_far_behind(self, kit: Kit) -> None:
        await kit.submit()
        await kit.submit()
        await kit.worker()

        task = await kit.started()

        assert await kit.complete(task) == "completed"

    async def test_submit_is_taken_again_once_history_caught_up(self, kit: Kit) -> None:
        await kit.submit()
        await kit.submit()

        await kit.engine.partition.acknowledge("9999999999999-0", [])

        assert await kit.submit()


class TestMemory:
    async def test_submit_under_memory_pressure_is_refused(self, kit: Kit) -> None:
        await kit.engine.scripts.call("set_memory_flag", is_high=1)
        before = await kit.dump()

        with pytest.raises(StoreFull) as refusal:
            await kit.submit(priority="high")

        assert refusal.value.retry_after_ms > 0
        assert await kit.dump() == before

    async def test_work_goes_on_under_memory_pressure(self, kit: Kit) -> None:
        await kit.submit()
        await kit.worker()
        await kit.engine.scripts.call("set_memory_flag", is_high=1)

        task = await kit.started()

        assert await kit.complete(task) == "completed"

    async def test_submit_after_the_pressure_ended_is_taken(self, kit: Kit) -> None:
        await kit.engine.scripts.call("set_memory_flag", is_high=1)

        await kit.engine.scripts.call("set_memory_flag", is_high=0)

        assert await kit.submit()
