"""Taking tasks by hand, in both forms, against a real service."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.api.bench import until
from tests.api.running import environ, serving
from tests.client.both import Form, client_of, pull_queue_of
from tests.client.faulty import LOST_ANSWER, faulty
from tests.client.workshop import recorded
from tests.stores import StoreUnderTest
from tideq.client import AsyncClient, Conflict, NewTask, NotHeld, RetryPolicy
from tideq.client.bulk import AsyncPullQueue
from tideq.queue_core.task_id import TaskIds


@pytest.fixture
async def queue(client: AsyncClient, task_type: str) -> AsyncIterator[AsyncPullQueue]:
    async with pull_queue_of(client, task_type) as queue:
        yield queue


async def status(client: AsyncClient, task_id: str) -> tuple[str, str]:
    task = await client.get(task_id)
    return task.status, task.reason


async def test_tasks_are_taken_in_order_and_completed(client: AsyncClient, queue: AsyncPullQueue) -> None:
    submitted = await queue.enqueue({"n": n} for n in range(7))

    first, second = await queue.dequeue(), await queue.dequeue()
    for task in (*first, *second):
        await queue.mark_as_complete(task.task_id, {"was": task.parameters["n"]})

    assert [task.parameters["n"] for task in (*first, *second)] == list(range(7))
    assert (len(first), len(second), await queue.dequeue()) == (5, 2, ())
    assert [(await client.get(each.task_id)).result for each in submitted] == [{"was": n} for n in range(7)]


async def test_a_task_that_came_without_a_trace_has_one_of_its_own(client: AsyncClient, queue: AsyncPullQueue) -> None:
    (submitted,) = await queue.enqueue([{"n": 1}])

    (taken,) = await queue.dequeue()

    digits = submitted.task_id.replace("-", "")
    assert (taken.trace_id, (await client.get(taken.task_id)).trace_id) == (digits, digits)


async def test_own_ids_are_welcome_and_duplicates_ignored(client: AsyncClient, queue: AsyncPullQueue) -> None:
    own, task_type = TaskIds().new(), f"t{uuid.uuid4().hex[:10]}"

    await queue.enqueue([NewTask(task_type, {"n": 1}, task_id=own), NewTask(task_type, {"n": 2}, task_id=own)])
    again = await queue.enqueue([NewTask(task_type, {"n": 3}, task_id=own), NewTask(task_type, {"n": 4})])

    assert again[0].task_id == own
    assert (await client.get(own)).parameters == {"n": 1}
    assert (await client.queue.stats()).queue.by_type[task_type] == 2


async def test_a_waiting_dequeue_is_answered_when_something_comes(client: AsyncClient, queue: AsyncPullQueue) -> None:
    await queue.dequeue()
    waiting = asyncio.create_task(queue.dequeue(wait_seconds=30))

    submitted = await queue.enqueue([{"n": 1}])
    async with asyncio.timeout(25):
        (task,) = await waiting

    assert task.task_id == submitted[0].task_id


async def test_what_was_taken_is_executing_for_its_visibility_timeout(
    client: AsyncClient, queue: AsyncPullQueue, task_type: str
) -> None:
    await queue.enqueue(NewTask(task_type, timeout_seconds=60) for _ in range(2))

    (own,) = await queue.dequeue(1)
    (longer,) = await queue.dequeue(1, visibility_timeout=1_000)

    now, slack = datetime.now(UTC), timedelta(seconds=30)
    assert abs(own.visible_at - now - timedelta(seconds=60)) < slack
    assert abs(longer.visible_at - now - timedelta(seconds=1_000)) < slack
    assert (await client.get(longer.task_id)).visible_at == longer.visible_at
    assert await status(client, own.task_id) == ("executing", "started")


async def test_when_a_shorter_timeout_is_over_the_task_goes_back(client: AsyncClient, queue: AsyncPullQueue) -> None:
    (submitted,) = await queue.enqueue([{"n": 1}])
    (task,) = await queue.dequeue(visibility_timeout=0.2)

    async def is_back() -> bool:
        return await status(client, submitted.task_id) == ("queued", "error")

    await until(is_back)

    with pytest.raises(NotHeld):
        await queue.mark_as_complete(task.task_id)
    back = await client.get(submitted.task_id)
    assert back.error is not None
    assert (back.retry_count, back.error.code) == (1, "TIMEOUT")


async def test_a_failed_task_waits_for_its_retry(client: AsyncClient, queue: AsyncPullQueue) -> None:
    (submitted,) = await queue.enqueue([{"n": 1}])
    (task,) = await queue.dequeue()

    went = await queue.mark_as_retry(task.task_id, "no voice", code="E1", details={"at": 3})

    back = await client.get(submitted.task_id)
    assert back.error is not None
    assert (went, back.status, back.retry_count) == ("queued", "queued", 1)
    assert (back.error.message, back.error.code, back.error.details) == ("no voice", "E1", {"at": 3})


async def test_failed_and_dead_tasks_are_put_back_so_many_at_a_time(
    client: AsyncClient, queue: AsyncPullQueue, task_type: str
) -> None:
    submitted = await queue.enqueue(NewTask(task_type, max_retries=0) for _ in range(3))
    dead, failed, other = await queue.dequeue(3)
    went = await queue.mark_as_retry(dead.task_id, "no voice")
    await queue.mark_as_failed(failed.task_id, "no text")
    await queue.mark_as_failed(other.task_id, "no text")
    await recorded(client, other.task_id)

    first = await queue.replay(2)
    await recorded(client, other.task_id)
    rest = await queue.replay(2)

    assert went == "dead_letter"
    assert [each.task_id for each in (*first, *rest)] == [each.task_id for each in reversed(submitted)]
    assert (len(first), len(rest), len(await queue.dequeue())) == (2, 1, 3)


async def test_a_discarded_task_is_a_dead_letter_at_once_and_can_be_resumed(
    client: AsyncClient, queue: AsyncPullQueue
) -> None:
    (submitted,) = await queue.enqueue([{"n": 1}])
    (task,) = await queue.dequeue()

    await queue.mark_as_discarded(task.task_id, "nobody speaks that", code="NO_VOICE", details={"at": 3})

    dead = await client.get(submitted.task_id)
    assert dead.error is not None
    assert (dead.status, dead.reason, dead.retry_count) == ("dead_letter", "discarded", 0)
    assert (dead.error.message, dead.error.code, dead.error.details) == ("nobody speaks that", "NO_VOICE", {"at": 3})
    with pytest.raises(NotHeld):
        await queue.mark_as_complete(task.task_id)
    assert (await queue.mark_as_resume(task.task_id)).status == "queued"
    assert [again.task_id for again in await queue.dequeue()] == [task.task_id]


async def test_a_cancelled_task_is_let_go_and_can_be_resumed(client: AsyncClient, queue: AsyncPullQueue) -> None:
    held, waiting = await queue.enqueue([{"n": 1}, {"n": 2}])
    await queue.dequeue(1)

    cancelled = [await queue.mark_as_cancelled(each.task_id) for each in (held, waiting)]
    resumed = await queue.mark_as_resume(waiting.task_id)

    assert [each.was_executing for each in cancelled] == [True, False]
    assert resumed.status == "queued"
    with pytest.raises(NotHeld):
        await queue.mark_as_complete(held.task_id)
    assert [task.task_id for task in await queue.dequeue()] == [waiting.task_id]


async def test_a_result_for_a_task_called_off_elsewhere_is_a_conflict(
    client: AsyncClient, queue: AsyncPullQueue
) -> None:
    (submitted,) = await queue.enqueue([{"n": 1}])
    await queue.dequeue()
    await client.cancel(submitted.task_id)

    with pytest.raises(Conflict):
        await queue.mark_as_complete(submitted.task_id, 1)

    assert await status(client, submitted.task_id) == ("cancelled", "cancelled")


async def test_leaving_hands_back_what_is_held_for_free(client: AsyncClient, task_type: str) -> None:
    async with pull_queue_of(client, task_type) as queue:
        (submitted,) = await queue.enqueue([{"n": 1}])
        await queue.dequeue()

    task = await client.get(submitted.task_id)
    assert (task.status, task.reason, task.retry_count) == ("queued", "released", 0)


async def test_only_the_queues_own_type_is_taken(client: AsyncClient, queue: AsyncPullQueue, task_type: str) -> None:
    await client.submit(f"{task_type}-other")
    await client.submit(task_type, required_capabilities=["gpu"])

    assert await queue.dequeue() == ()
    async with pull_queue_of(client, task_type, capabilities=["gpu"]) as able:
        assert len(await able.dequeue()) == 1


async def test_lost_answers_lose_no_task_and_take_none_twice(url: str, form: Form, task_type: str) -> None:
    async with (
        faulty(url) as proxy,
        client_of(form, proxy.url, retries=RetryPolicy(base_seconds=0.001)) as client,
        pull_queue_of(client, task_type) as queue,
    ):
        await queue.enqueue({"n": n} for n in range(3))
        await queue.dequeue(1)
        proxy.faults = [LOST_ANSWER, LOST_ANSWER, LOST_ANSWER]

        # Lost: the answers to a poll, to a start, and to the start again.
        (task,) = await queue.dequeue(1)
        proxy.faults = [LOST_ANSWER]
        await queue.mark_as_complete(task.task_id, "once")

        done = await client.get(task.task_id)
        assert (done.result, done.version, done.attempt) == ("once", 4, 1)
        assert (await client.queue.stats()).queue.by_type[task_type] == 1


class TestHeartbeats:
    @pytest.fixture
    def impatient(self, store: StoreUnderTest, task_type: str) -> dict[str, str]:
        """A service that gives workers up after three seconds."""
        return environ(store.url, task_type, TIDEQ_HEARTBEAT_TIMEOUT_SECONDS="3")

    async def test_a_held_task_stays_held_without_a_word(
        self, form: Form, impatient: dict[str, str], tmp_path: Path, task_type: str
    ) -> None:
        with serving(impatient, tmp_path) as running:
            async with client_of(form, running.url) as client, pull_queue_of(client, task_type) as queue:
                (submitted,) = await queue.enqueue([{"n": 1}])
                await queue.dequeue()

                beats = await self.beats(client, 5)

                assert beats >= 5
                assert await status(client, submitted.task_id) == ("executing", "started")
                await queue.mark_as_complete(submitted.task_id)

    async def beats(self, client: AsyncClient, count: int) -> int:
        """How often the only worker was heard of, until it was so often: a second apart, so past its timeout."""
        heard: set[datetime] = set()

        async def is_enough() -> bool:
            (worker,) = [worker async for worker in client.workers.list()]
            if worker.last_heartbeat_at:
                heard.add(worker.last_heartbeat_at)
            return len(heard) >= count or worker.status == "dead"

        await until(is_enough)
        return len(heard)

    async def test_a_queue_that_was_given_up_registers_again(
        self, form: Form, impatient: dict[str, str], tmp_path: Path, task_type: str
    ) -> None:
        with serving(impatient, tmp_path) as running:
            async with client_of(form, running.url) as client, pull_queue_of(client, task_type) as queue:
                await queue.enqueue([{"n": 1}])
                await queue.dequeue()
                (worker,) = [worker async for worker in client.workers.list()]
                # As the service does with one it no longer hears of, only at once.
                async with httpx.AsyncClient() as http:
                    left = await http.delete(f"{running.url}/internal/workers/{worker.worker_id}")
                assert left.json() == {"released": 1}

                (task,) = await queue.dequeue(wait_seconds=10)
                await queue.mark_as_complete(task.task_id, 1)

                assert (await client.get(task.task_id)).status == "completed"

    async def test_a_cancelled_task_is_told(
        self, form: Form, impatient: dict[str, str], tmp_path: Path, task_type: str
    ) -> None:
        with serving(impatient, tmp_path) as running:
            async with client_of(form, running.url) as client, pull_queue_of(client, task_type) as queue:
                (submitted,) = await queue.enqueue([{"n": 1}])
                await queue.dequeue()
                await client.cancel(submitted.task_id)

                async def is_told() -> bool:
                    return queue.cancelled == frozenset({submitted.task_id})

                await until(is_told)
