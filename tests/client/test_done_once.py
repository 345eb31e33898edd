"""What the client does where an answer was lost to something that must happen once."""

import pytest

from tests.api.bench import Bench
from tests.client.faulty import LOST_ANSWER, FaultyProxy
from tests.client.workshop import do_one, fail_one, recorded
from tideq.client import AsyncClient, Conflict, NoAnswer, NotFound


@pytest.fixture
async def client(hasty: AsyncClient) -> AsyncClient:
    """Talks through the proxy."""
    return hasty


class TestWhatIsDoneOnce:
    """The first attempt was carried out and its answer lost: the second one finds that out."""

    async def test_a_cancelled_task_is_cancelled(self, client: AsyncClient, proxy: FaultyProxy, task_type: str) -> None:
        task_id = (await client.submit(task_type)).task_id
        proxy.faults = [LOST_ANSWER]

        cancelled = await client.cancel(task_id)

        assert (cancelled.status, cancelled.was_executing) == ("cancelled", None)
        assert (await client.get(task_id)).version == 2

    async def test_a_task_that_somebody_else_cancelled_is_a_conflict(self, client: AsyncClient, task_type: str) -> None:
        task_id = (await client.submit(task_type)).task_id
        await client.cancel(task_id)

        with pytest.raises(Conflict):
            await client.cancel(task_id)

    async def test_a_completed_task_stays_a_conflict_whatever_was_lost(
        self, client: AsyncClient, proxy: FaultyProxy, workers: Bench, task_type: str
    ) -> None:
        task_id = (await client.submit(task_type)).task_id
        await do_one(workers, task_type)
        proxy.faults = [LOST_ANSWER]

        with pytest.raises(Conflict) as refused:
            await client.cancel(task_id)

        assert refused.value.state == "completed"

    async def test_a_purged_task_is_purged(self, client: AsyncClient, proxy: FaultyProxy, task_type: str) -> None:
        task_id = (await client.submit(task_type)).task_id
        await client.cancel(task_id)
        proxy.faults = [LOST_ANSWER]

        await client.purge(task_id)

        with pytest.raises(NotFound):
            await client.get(task_id)

    async def test_a_retried_task_is_retried_once(
        self, client: AsyncClient, proxy: FaultyProxy, task_type: str
    ) -> None:
        task_id = (await client.submit(task_type)).task_id
        await client.cancel(task_id)
        proxy.faults = [LOST_ANSWER]

        retried = await client.retry(task_id)

        assert (retried.status, retried.version) == ("queued", None)
        assert (await client.get(task_id)).version == 3

    async def test_a_replayed_dead_letter_is_replayed_once(
        self, client: AsyncClient, proxy: FaultyProxy, workers: Bench, task_type: str
    ) -> None:
        task_id = (await client.submit(task_type, max_retries=0)).task_id
        await fail_one(workers, task_type, retriable=True)
        version = (await client.get(task_id)).version
        proxy.faults = [LOST_ANSWER]

        replayed = await client.dlq.replay(task_id)

        assert replayed.status == "queued"
        assert (await client.get(task_id)).version == version + 1

    async def test_what_counts_is_not_begun_twice(
        self, client: AsyncClient, proxy: FaultyProxy, workers: Bench, task_type: str
    ) -> None:
        task_id = (await client.submit(task_type, max_retries=0)).task_id
        await fail_one(workers, task_type, retriable=True)
        await recorded(client, task_id)
        proxy.seen.clear()
        proxy.faults = [LOST_ANSWER]

        with pytest.raises(NoAnswer):
            await client.dlq.replay_all(task_type=task_type)

        assert len(proxy.seen) == 1
        assert (await client.get(task_id)).status == "queued"
