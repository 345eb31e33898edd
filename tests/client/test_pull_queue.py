"""Taking tasks by hand, in both forms, against a real service."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.bench import until
from tests.api.running import environ, serving
from tests.client.both import Form, client_of, pull_queue_of
from tests.client.faulty import LOST_ANSWER, faulty
from tests.client.workshop import recorded
from tests.stores import StoreUnderTest
from tideq.client import (
    AsyncClient,
    Backoff,
    Conflict,
    InvalidRequest,
    NewTask,
    NotAllMarked,
    NotHeld,
    RetryPolicy,
    TideqError,
)
from tideq.client.bulk import AsyncPullQueue, PulledTask
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


class TestManyAtOnce:
    async def test_tasks_are_completed_each_with_its_result_or_all_with_one(
        self, client: AsyncClient, queue: AsyncPullQueue
    ) -> None:
        submitted = await queue.enqueue({"n": n} for n in range(5))
        taken = await queue.dequeue()

        await queue.mark_as_complete({task.task_id: task.parameters["n"] for task in taken[:3]})
        await queue.mark_as_complete([task.task_id for task in taken[3:]], "the same")

        assert [(await client.get(each.task_id)).result for each in submitted] == [0, 1, 2, "the same", "the same"]

    async def test_each_is_told_where_its_retry_went(
        self, client: AsyncClient, queue: AsyncPullQueue, task_type: str
    ) -> None:
        await queue.enqueue([NewTask(task_type), NewTask(task_type, max_retries=0), NewTask(task_type)])
        first, last, failed = await queue.dequeue()

        went = await queue.mark_as_retry((first.task_id, last.task_id), "no voice")
        await queue.mark_as_failed({failed.task_id}, "no text")

        assert went == ("queued", "dead_letter")
        assert (await client.get(failed.task_id)).status == "failed"

    async def test_they_are_discarded_without_a_word_resumed_and_called_off(
        self, client: AsyncClient, queue: AsyncPullQueue
    ) -> None:
        ids = [each.task_id for each in await queue.enqueue({"n": n} for n in range(3))]
        await queue.dequeue(2)

        await queue.mark_as_discarded(ids[0])
        await queue.mark_as_discarded(ids[1:2])
        dead = [await status(client, task_id) for task_id in ids[:2]]
        resumed = await queue.mark_as_resume(ids[:2])
        cancelled = await queue.mark_as_cancelled(ids)

        assert dead == [("dead_letter", "discarded")] * 2
        assert [each.status for each in resumed] == ["queued", "queued"]
        assert [each.task_id for each in cancelled] == ids
        assert [await status(client, task_id) for task_id in ids] == [("cancelled", "cancelled")] * 3

    async def test_those_that_are_refused_are_named_and_the_others_are_marked(
        self, client: AsyncClient, queue: AsyncPullQueue
    ) -> None:
        mine, lost, never = [each.task_id for each in await queue.enqueue({"n": n} for n in range(3))]
        await queue.dequeue(2)
        await client.cancel(lost)

        with pytest.raises(NotAllMarked, match=r"2 of 3 tasks were not marked") as refused:
            await queue.mark_as_complete([mine, lost, never], "done")
        with pytest.raises(NotAllMarked) as not_resumed:
            await queue.mark_as_resume([lost, never])
        with pytest.raises(NotAllMarked) as not_cancelled:
            await queue.mark_as_cancelled([mine, never])

        assert {task_id: type(error) for task_id, error in refused.value.refused.items()} == {
            lost: Conflict,
            never: NotHeld,
        }
        assert (await client.get(mine)).result == "done"
        assert (list(not_resumed.value.refused), list(not_cancelled.value.refused)) == ([never], [mine])
        assert await status(client, never) == ("cancelled", "cancelled")

    async def test_hundreds_take_one_call(self, url: str, form: Form, task_type: str) -> None:
        async with (
            faulty(url) as proxy,
            client_of(form, proxy.url) as client,
            pull_queue_of(client, task_type, batch_size=200) as queue,
        ):
            await queue.enqueue({"n": n} for n in range(200))
            taken = await queue.dequeue()
            proxy.seen.clear()

            await queue.mark_as_complete([task.task_id for task in taken])

            assert (len(taken), [each.head.split()[0] for each in proxy.seen]) == (200, ["POST"])


class TestTryingAgain:
    @pytest.fixture
    async def queue(self, client: AsyncClient, task_type: str) -> AsyncIterator[AsyncPullQueue]:
        """Whose failed tasks come back at once."""
        soon = Backoff(base_seconds=0.001, multiplier=1, cap_seconds=0.001)
        async with pull_queue_of(client, task_type, max_attempts=9, backoff=soon, visibility_timeout=900) as queue:
            yield queue

    async def again(self, queue: AsyncPullQueue, *args: Any, **options: Any) -> tuple[PulledTask, ...]:
        """As soon as there is something to be tried again."""
        found: list[tuple[PulledTask, ...]] = []

        async def has_come() -> bool:
            found[:] = [await queue.retry(*args, **options)]
            return bool(found[0])

        await until(has_come)
        return found[0]

    async def test_only_what_was_tried_before_is_given_out_and_the_rest_keeps_its_place(
        self, client: AsyncClient, queue: AsyncPullQueue
    ) -> None:
        submitted = [each.task_id for each in await queue.enqueue({"n": n} for n in range(6))]
        first, second = await queue.dequeue(2)
        await queue.mark_as_retry([first.task_id, second.task_id], "no voice")

        given = await self.again(queue)
        given += () if len(given) == 2 else await self.again(queue)

        assert sorted(task.task_id for task in given) == submitted[:2]
        assert {(task.retry_count, task.losses, task.tries) for task in given} == {(1, 0, 1)}
        assert await status(client, submitted[0]) == ("executing", "started")
        assert [task.task_id for task in await queue.dequeue()] == submitted[2:]
        assert {(await client.get(task_id)).deliveries for task_id in submitted} == {0}

    async def test_it_is_found_behind_more_urgent_tasks_that_were_never_tried(
        self, client: AsyncClient, queue: AsyncPullQueue, task_type: str
    ) -> None:
        """A retry keeps its age, and that is less than what is more urgent is ahead by."""
        (low,) = await queue.enqueue([NewTask(task_type, priority="low")])
        await queue.dequeue()
        await queue.mark_as_retry(low.task_id, "no voice")
        fresh = [each.task_id for each in await queue.enqueue(NewTask(task_type, priority="high") for _ in range(40))]

        (again,) = await self.again(queue, 2)

        assert again.task_id == low.task_id
        assert [task.task_id for task in await queue.dequeue(50)] == fresh
        assert {(await client.get(task_id)).deliveries for task_id in fresh} == {0}

    async def test_no_more_are_given_out_than_were_asked_for(
        self, client: AsyncClient, queue: AsyncPullQueue, task_type: str
    ) -> None:
        low = [each.task_id for each in await queue.enqueue(NewTask(task_type, priority="low") for _ in range(4))]
        await queue.dequeue(4)
        await queue.mark_as_retry(low, "no voice")
        await queue.enqueue(NewTask(task_type, priority="high") for _ in range(10))

        given = [task.task_id for _ in range(2) for task in await self.again(queue, 2)]

        assert 2 <= len(given) <= 4
        assert {(await status(client, task_id))[0] for task_id in given} == {"executing"}
        assert {(await status(client, task_id))[0] for task_id in set(low).difference(given)} <= {"queued"}

    async def test_what_was_taken_goes_back_when_a_later_look_is_lost(
        self, form: Form, client: AsyncClient, url: str, queue: AsyncPullQueue, task_type: str
    ) -> None:
        (tried,) = await queue.enqueue([{"n": 1}])
        await queue.dequeue()
        await queue.mark_as_retry(tried.task_id, "no voice")
        fresh = [each.task_id for each in await queue.enqueue({"n": n} for n in range(20))]

        async with (
            faulty(url) as proxy,
            client_of(form, proxy.url, retries=RetryPolicy(deadline_seconds=0)) as once,
            pull_queue_of(once, task_type) as other,
        ):
            await self.again(other, 1)
            proxy.faults = [None, LOST_ANSWER]
            with pytest.raises(TideqError):
                await other.retry(3)

            assert {await status(client, task_id) for task_id in fresh[:3]} == {("queued", "released")}
            assert await status(client, fresh[3]) == ("assigned", "claimed")

    async def test_what_is_given_out_is_held_for_the_time_that_was_asked_for(self, queue: AsyncPullQueue) -> None:
        await queue.enqueue([{"n": 1}])
        (task,) = await queue.dequeue()
        by_default = task.visible_at - datetime.now(UTC)
        await queue.mark_as_retry(task.task_id, "no voice")

        (again,) = await self.again(queue, 5, 2_000)

        assert abs(by_default - timedelta(seconds=900)) < timedelta(seconds=30)
        assert abs(again.visible_at - datetime.now(UTC) - timedelta(seconds=2_000)) < timedelta(seconds=30)
        await queue.mark_as_complete(again.task_id)

    async def test_what_was_tried_so_often_is_discarded_instead(
        self, client: AsyncClient, queue: AsyncPullQueue
    ) -> None:
        (submitted,) = await queue.enqueue([{"n": 1}])
        (task,) = await queue.dequeue()
        for _ in range(2):
            assert await queue.mark_as_retry(task.task_id, "no voice") == "queued"
            (task,) = await self.again(queue, max_attempts=3)
        await queue.mark_as_retry(task.task_id, "no voice")

        async def is_discarded() -> bool:
            assert await queue.retry(size=5, max_attempts=3) == ()
            return await status(client, submitted.task_id) == ("dead_letter", "discarded")

        await until(is_discarded)
        dead = await client.get(submitted.task_id)
        assert dead.error is not None
        assert (dead.retry_count, dead.error.code, dead.error.message) == (3, "MAX_ATTEMPTS", "tried 3 times")

    async def test_a_task_whose_holder_was_lost_is_tried_again_too(
        self, client: AsyncClient, queue: AsyncPullQueue
    ) -> None:
        (submitted,) = await queue.enqueue([{"n": 1}])
        (task,) = await queue.dequeue(visibility_timeout=0.2)

        (again,) = await self.again(queue)

        assert (again.task_id, again.tries) == (submitted.task_id, 1)
        assert task.lease != again.lease


class TestDefaults:
    async def test_attempts_and_backoff_are_for_what_says_nothing_of_its_own(
        self, client: AsyncClient, task_type: str
    ) -> None:
        backoff = Backoff(base_seconds=60, multiplier=2, cap_seconds=3_600)
        async with pull_queue_of(client, task_type, max_attempts=3, backoff=backoff) as queue:
            plain, own = await queue.enqueue([{"n": 1}, NewTask(task_type, max_retries=7, backoff=Backoff())])

        tasks = [await client.get(each.task_id) for each in (plain, own)]
        assert [(task.max_retries, task.backoff) for task in tasks] == [(2, backoff), (7, Backoff())]

    async def test_a_batch_is_as_large_as_the_queue_says(self, client: AsyncClient, task_type: str) -> None:
        async with pull_queue_of(client, task_type, batch_size=3) as queue:
            await queue.enqueue({"n": n} for n in range(5))

            assert [len(await queue.dequeue()) for _ in range(3)] == [3, 2, 0]

    async def test_no_attempt_at_all_is_refused(self, client: AsyncClient, task_type: str) -> None:
        with pytest.raises(ValueError, match="max_attempts=0"):
            pull_queue_of(client, task_type, max_attempts=0)


async def test_a_thousand_are_taken_or_refused_together_and_the_error_says_what_stands(
    client: AsyncClient, queue: AsyncPullQueue, task_type: str
) -> None:
    """The last of 2 500 is refused: with it its own thousand, and no other."""
    tasks = [NewTask(task_type, {"n": n}) for n in range(2_499)]

    with pytest.raises(InvalidRequest) as refused:
        await queue.enqueue([*tasks, NewTask(task_type, {"n": 2_499}, priority="no such level")])

    assert len(refused.value.submitted) == 2_000
    assert refused.value.__notes__ == ["2000 tasks stand: the error's `submitted` has them"]
    assert refused.value.fields[0].pointer.startswith("/tasks/2499")
    assert (await client.queue.stats()).queue.by_type[task_type] == 2_000
