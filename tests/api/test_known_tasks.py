"""Submissions that stand for a task already, when the store no longer has it: history speaks for it, or nobody does."""

import time
import uuid

import httpx
import pytest

from tests.api.bench import Bench, Json, until
from tests.api.replication import Replication
from tests.kit import Kit
from tideq.api.schemas.submission import SubmittedStatus
from tideq.persistence.schema.partitions import id_at
from tideq.queue_core.settings import QueueSettings, Retention
from tideq.queue_core.states import TaskState

TASKS, BATCH = "/api/v1/tasks", "/api/v1/tasks/batch"
HOUR_MS = 3_600_000


@pytest.fixture
def settings() -> QueueSettings:
    """Finished tasks are forgotten with the next sweep after history has them."""
    return QueueSettings(retention=Retention(result_ttl_ms=20))


async def complete(bench: Bench) -> str:
    worker_id = await bench.register()
    task = await bench.started(worker_id)
    await bench.tell(worker_id, "result", task, status="completed", result=1)
    return task["task_id"]


def chosen_at(instant_ms: int) -> str:
    return str(uuid.UUID(int=id_at(instant_ms).int | 7 << 76 | 2 << 62 | 0xABCDEF0000))


def test_a_submission_is_answered_with_a_state_or_with_gone() -> None:
    assert {each.value for each in SubmittedStatus} == {*(state.value for state in TaskState), "gone"}


@pytest.mark.parametrize("repeated", [{"idempotency_key": "k"}, {"task_id": chosen_at(1_700_000_000_000)}], ids=str)
async def test_a_repeated_submission_of_a_task_in_a_state_of_a_later_version_says_its_word(
    bench: Bench, kit: Kit, repeated: Json
) -> None:
    first = await bench.submit(**repeated)
    records = kit.keys.key("records")
    whole = await kit.client.hget(records, first)
    await kit.client.hset(records, first, whole.replace(b"queued\0", b"sleeping\0", 1))

    again = await bench.call("POST", TASKS, {"task_type": "resize", **repeated})
    batch = await bench.call("POST", BATCH, {"tasks": [{"task_type": "resize", **repeated}]})

    assert (again["task_id"], again["status"]) == (first, "sleeping")
    assert [each["status"] for each in batch["tasks"]] == ["sleeping"]
    await kit.client.hset(records, first, whole)


class TestWithHistory:
    @pytest.fixture
    def has_history(self) -> bool:
        return True

    @pytest.mark.parametrize("ahead_ms", [-HOUR_MS * 24 * 400, 0, HOUR_MS, HOUR_MS * 24 * 400])
    async def test_a_chosen_id_runs_once_whatever_time_is_in_it(
        self, bench: Bench, replicated: Replication, kit: Kit, ahead_ms: int
    ) -> None:
        """Its submitter's clock may be off, and so may this process's."""
        chosen = chosen_at(time.time_ns() // 1_000_000 + ahead_ms)
        await bench.submit(task_id=chosen)
        assert await complete(bench) == chosen
        await replicated.forgotten(chosen)

        again = await bench.call("POST", TASKS, {"task_type": "resize", "task_id": chosen})

        assert (again["task_id"], again["status"]) == (chosen, "completed")
        assert (await kit.insight.stats()).total_depth == 0

    async def test_a_chosen_id_that_the_store_forgets_meanwhile_is_not_new_to_it(
        self, bench: Bench, replicated: Replication, kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the look at the store and the submission."""
        chosen = chosen_at(time.time_ns() // 1_000_000)
        await bench.submit(task_id=chosen)
        await complete(bench)
        await replicated.done()
        queue = replicated._service.engine.queue  # pyright: ignore[reportPrivateUsage]
        read_many = queue.read_many

        async def read_and_forget(task_ids: list[str]) -> object:
            found = await read_many(task_ids)
            monkeypatch.undo()
            await replicated.forgotten(*task_ids)
            return found

        monkeypatch.setattr(queue, "read_many", read_and_forget)
        again = await bench.call("POST", TASKS, {"task_type": "resize", "task_id": chosen})

        assert again["task_id"] == chosen
        assert (await kit.insight.stats()).total_depth == 0

    @pytest.mark.parametrize("level", ["disk", "history"])
    async def test_a_durable_repeat_of_what_only_history_has_counts_as_reached(
        self, bench: Bench, replicated: Replication, level: str
    ) -> None:
        submission: Json = {"task_type": "resize", "idempotency_key": "k", "durability": level}
        first = await bench.call("POST", TASKS, submission)
        await complete(bench)
        await replicated.forgotten(first["task_id"])

        again = await bench.call("POST", TASKS, submission)
        batch = await bench.call("POST", BATCH, {"tasks": [submission, {"task_type": "other", "durability": level}]})

        assert again | {"status": "queued"} == first | {"queue_score": None, "queue_position": None}
        assert (again["status"], again["durability"]) == ("completed", level)
        assert [each["status"] for each in batch["tasks"]] == ["completed", "queued"]

    async def test_a_batch_repeated_after_one_of_it_was_purged_says_that_it_is_gone(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        batch, key = {"tasks": [{"task_type": "resize"}] * 3}, {"Idempotency-Key": "b"}
        first = (await http.post(BATCH, json=batch, headers=key)).json()["tasks"]
        purged = first[1]["task_id"]
        await bench.call("DELETE", f"{TASKS}/{purged}")
        await bench.call("DELETE", f"{TASKS}/{purged}?purge=true")
        await replicated.done()

        again = await http.post(BATCH, json=batch, headers=key)

        assert again.status_code == 201
        assert [each["task_id"] for each in again.json()["tasks"]] == [each["task_id"] for each in first]
        assert [each["status"] for each in again.json()["tasks"]] == ["queued", "gone", "queued"]
        assert again.json()["tasks"][1]["queue_position"] is None


async def test_without_history_a_repeat_of_what_was_forgotten_says_that_it_is_gone(
    bench: Bench, http: httpx.AsyncClient, kit: Kit
) -> None:
    task_id = await bench.submit(idempotency_key="k")
    await complete(bench)

    async def is_forgotten() -> bool:
        await kit.queue.sweep()
        return (await http.get(f"{TASKS}/{task_id}")).status_code == 404

    await until(is_forgotten)
    again = await bench.call("POST", TASKS, {"task_type": "resize", "idempotency_key": "k", "durability": "disk"})

    assert (again["task_id"], again["status"], again["durability"]) == (task_id, "gone", "store")
