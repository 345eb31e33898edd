"""Lists, searches and dead letters through the client, in both its forms."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.api.bench import Bench
from tests.client.workshop import do_one, fail_one, recorded
from tideq.client import AsyncClient, InvalidRequest, NewTask, TideqError


async def bury(
    client: AsyncClient, workers: Bench, task_type: str, message: str = "upstream 10.0.0.7 timed out"
) -> str:
    """A dead letter of this type."""
    task_id = (await client.submit(task_type, max_retries=0)).task_id
    await fail_one(workers, task_type, message, retriable=True)
    await recorded(client, task_id)
    return task_id


class TestTasks:
    async def test_iterating_goes_over_all_pages_newest_first(self, client: AsyncClient, task_type: str) -> None:
        submitted = await client.submit_many(NewTask(task_type, {"n": n}) for n in range(25))
        await recorded(client, submitted[-1].task_id)

        listed = [task.task_id async for task in client.list(task_type=task_type, page_size=10)]

        assert listed == [each.task_id for each in reversed(submitted)]

    async def test_pages_come_one_by_one_and_by_cursor(self, client: AsyncClient, task_type: str) -> None:
        submitted = await client.submit_many(NewTask(task_type) for _ in range(25))
        await recorded(client, submitted[-1].task_id)
        listing = client.list(task_type=task_type, page_size=10, count=True)

        pages = [page async for page in listing.pages()]
        second = await listing.page(pages[0].next_cursor)

        assert [len(page.items) for page in pages] == [10, 10, 5]
        assert [page.total for page in pages] == [25] * 3
        assert [task.task_id for task in second.items] == [task.task_id for task in pages[1].items]
        assert pages[2].next_cursor is None

    async def test_every_filter_reaches_the_service(self, client: AsyncClient, workers: Bench, task_type: str) -> None:
        wanted = await client.submit(task_type, priority="high", tags={"customer": "c:118", "tier": "gold"})
        other = await client.submit(task_type, tags={"customer": "c-119"})
        await fail_one(workers, task_type, "upstream timed out")
        await do_one(workers, task_type)
        await recorded(client, other.task_id)
        failed = await client.get(wanted.task_id)
        worker_id = next(
            change.worker_id
            for change in (await client.get(wanted.task_id, history=True)).state_history
            if change.state == "executing"
        )

        found = [
            [task.task_id async for task in listing]
            for listing in (
                client.list(task_type=task_type, status="failed"),
                client.list(task_type=task_type, priority="high"),
                client.list(task_type=task_type, tags={"customer": "c:118", "tier": "gold"}),
                client.list(task_type=task_type, worker_id=worker_id),
                client.list(task_type=task_type, error="timed upstream"),
                client.list(task_type=task_type, created_before=failed.created_at + timedelta(milliseconds=1)),
            )
        ]
        both = [task.task_id async for task in client.list(task_type=task_type, status=["failed", "completed"])]
        later = [
            task async for task in client.list(task_type=task_type, created_after=datetime(2035, 1, 1, tzinfo=UTC))
        ]

        assert found[:5] == [[wanted.task_id]] * 5
        assert wanted.task_id in found[5]
        assert both == [other.task_id, wanted.task_id]
        assert later == []

    async def test_a_declared_parameter_can_be_searched_for(self, client: AsyncClient) -> None:
        submitted = await client.submit("sought", {"width": 640_001})
        await recorded(client, submitted.task_id)

        found = [task.task_id async for task in client.list(task_type="sought", parameters={"width": "640001"})]

        assert submitted.task_id in found
        await client.cancel(submitted.task_id)

    async def test_a_wrong_filter_is_refused(self, client: AsyncClient, task_type: str) -> None:
        with pytest.raises(InvalidRequest):
            await client.list(task_type=task_type, parameters={"colour": "red"}).page()
        with pytest.raises(InvalidRequest):
            await client.list(task_type=task_type).page("no cursor of yours")


class TestDeadLetters:
    async def test_they_are_listed_with_how_they_died(
        self, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        ids = [await bury(client, workers, task_type) for _ in range(3)]

        page = await client.dlq.list(task_type=task_type, count=True).page()
        walked = [letter.task_id async for letter in client.dlq.list(task_type=task_type, page_size=2)]

        assert walked == [letter.task_id for letter in page.items] == ids[::-1]
        letter = page.items[0]
        assert (page.total, letter.reason, letter.retriable) == (3, "retries_exhausted", True)
        assert letter.message == "upstream <host> timed out"
        assert letter.died_at <= datetime.now(UTC) + timedelta(minutes=1)
        assert letter.error is not None

    async def test_patterns_tell_what_died_alike(self, client: AsyncClient, workers: Bench, task_type: str) -> None:
        for _ in range(2):
            await bury(client, workers, task_type)

        (pattern,) = [each for each in await client.dlq.patterns() if each.task_type == task_type]

        assert (pattern.count, pattern.retriable_count, pattern.is_new) == (2, 2, True)
        assert [letter.pattern async for letter in client.dlq.list(pattern=pattern.pattern)] == [pattern.pattern] * 2

    async def test_one_is_sent_back(self, client: AsyncClient, workers: Bench, task_type: str) -> None:
        task_id = await bury(client, workers, task_type)

        replayed = await client.dlq.replay(task_id, new_priority="low")

        task = await client.get(task_id)
        assert (replayed.status, replayed.version) == ("queued", task.version)
        assert (task.reason, task.priority, task.retry_count) == ("replayed", "low", 0)

    async def test_all_that_match_are_counted_first_and_then_sent_back(
        self, client: AsyncClient, workers: Bench, task_type: str
    ) -> None:
        ids = {await bury(client, workers, task_type) for _ in range(3)}
        await bury(client, workers, f"{task_type}-other")

        preview = await client.dlq.replay_all(task_type=task_type, reason="retries_exhausted", dry_run=True)
        still_dead = {letter.task_id async for letter in client.dlq.list(task_type=task_type)}
        done = await client.dlq.replay_all(task_type=task_type, before=datetime.now(UTC) + timedelta(hours=1))

        assert (preview.matched, preview.replayed) == (3, 0)
        assert still_dead == ids
        assert (done.matched, done.replayed, done.refused) == (3, 3, 0)
        assert {(await client.get(task_id)).status for task_id in ids} == {"queued"}
        assert len([letter async for letter in client.dlq.list(task_type=f"{task_type}-other")]) == 1

    async def test_an_instant_without_a_zone_is_refused(self, client: AsyncClient) -> None:
        with pytest.raises(ValueError, match="no time zone"):
            await client.dlq.replay_all(before=datetime(2035, 1, 1))

    async def test_a_priority_nobody_knows_is_refused(self, client: AsyncClient, task_type: str) -> None:
        with pytest.raises(TideqError) as refused:
            await client.dlq.replay_all(task_type=task_type, new_priority="urgent")

        assert isinstance(refused.value, InvalidRequest)
