"""estimated_wait_seconds: what is ahead, by what finished in the last minute."""

import httpx
import pytest

from tests.api.bench import Bench, until
from tests.contract.situations import complete_all, started_count, submit_count
from tests.kit import Kit
from tideq.api import wait_estimate
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.inspector import Inspector
from tideq.queue_core.partition_views import Stats

TASKS = "/api/v1/tasks"


@pytest.fixture
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every estimate looks first."""
    monkeypatch.setattr(wait_estimate, "FRESH_SECONDS", -1.0)
    monkeypatch.setattr(wait_estimate, "STALE_SECONDS", -1.0)


async def _finish(kit: Kit, count: int) -> None:
    await kit.worker(capacity=count)
    await complete_all(kit, await started_count(kit, count))


async def _submitted(bench: Bench, **fields: object) -> dict[str, object]:
    return await bench.call("POST", TASKS, {"task_type": "resize", **fields})


@pytest.mark.usefixtures("_no_memory")
class TestLooking:
    async def test_a_submission_is_told_how_long_those_ahead_take(self, bench: Bench, kit: Kit) -> None:
        await _finish(kit, 30)
        await submit_count(kit, 15)

        answer = await _submitted(bench)

        assert (answer["queue_position"], answer["estimated_wait_seconds"]) == (15, 30.0)

    async def test_a_read_is_told_as_of_now(self, bench: Bench, kit: Kit) -> None:
        await _finish(kit, 60)
        first, second = await submit_count(kit, 2)

        before = [(await bench.read(task_id))["estimated_wait_seconds"] for task_id in (first, second)]
        await kit.claimed()

        assert before == [0.0, 1.0]
        assert (await bench.read(second))["estimated_wait_seconds"] == 0.0

    async def test_failures_make_room_too(self, bench: Bench, kit: Kit) -> None:
        await kit.worker()
        await kit.fail((await started_count(kit, 1))[0], verdict="fail")
        await submit_count(kit, 2)

        assert (await _submitted(bench))["estimated_wait_seconds"] == 120.0

    async def test_nobody_knows_while_nothing_finishes(self, bench: Bench, kit: Kit) -> None:
        await submit_count(kit, 3)

        answer = await _submitted(bench)

        assert answer["estimated_wait_seconds"] is None
        assert (await bench.read(str(answer["task_id"])))["estimated_wait_seconds"] is None

    async def test_what_finished_earlier_does_not_count(self, bench: Bench, kit: Kit) -> None:
        await _finish(kit, 5)
        await kit.clock.advance(61_000)

        assert (await _submitted(bench))["estimated_wait_seconds"] is None

    async def test_a_hidden_task_has_no_estimate(self, bench: Bench, kit: Kit) -> None:
        await _finish(kit, 5)

        answer = await _submitted(bench, delay_seconds=60)

        assert (answer["queue_position"], answer["estimated_wait_seconds"]) == (None, None)

    @pytest.mark.parametrize("verb", ["claimed", "started"])
    async def test_a_task_that_no_longer_waits_has_no_estimate(self, bench: Bench, kit: Kit, verb: str) -> None:
        await _finish(kit, 5)
        task_id = await bench.submit()
        await getattr(kit, verb)()

        assert (await bench.read(task_id))["estimated_wait_seconds"] is None

    async def test_a_repeated_submission_is_told_how_it_is_by_now(self, bench: Bench, kit: Kit) -> None:
        await _finish(kit, 60)
        await submit_count(kit, 3)
        before = await _submitted(bench, idempotency_key="k")
        await kit.claimed()

        again = await _submitted(bench, idempotency_key="k")

        assert (before["estimated_wait_seconds"], again["estimated_wait_seconds"]) == (3.0, 2.0)

    async def test_a_store_that_tells_no_statistics_costs_the_estimate_and_not_the_task(
        self, http: httpx.AsyncClient, bench: Bench, kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def away(_: Inspector) -> Stats:
            raise StoreUnavailable("away")

        await _finish(kit, 5)
        monkeypatch.setattr(Inspector, "stats", away)

        answer = await http.post(TASKS, json={"task_type": "resize"})

        assert (answer.status_code, answer.json()["estimated_wait_seconds"]) == (201, None)


async def _script_calls(kit: Kit) -> int:
    return (await kit.client.info("commandstats"))["cmdstat_evalsha"]["calls"]


async def test_submissions_cost_one_store_call_each(bench: Bench, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the service does by the clock makes a few calls of its own meanwhile, more on a slow machine."""
    monkeypatch.setattr(wait_estimate, "FRESH_SECONDS", 3600.0)
    await bench.submit()
    before = await _script_calls(kit)

    for _ in range(50):
        await bench.submit()

    assert 50 <= await _script_calls(kit) - before < 100


async def test_what_is_remembered_is_renewed(bench: Bench, kit: Kit) -> None:
    first = await _submitted(bench)
    await kit.worker()
    await complete_all(kit, await started_count(kit, 1))

    async def is_told() -> bool:
        return (await _submitted(bench))["estimated_wait_seconds"] is not None

    await until(is_told)
    assert first["estimated_wait_seconds"] is None
    assert wait_estimate.FRESH_SECONDS <= 2
