"""buckets: what a client is told about its rate limit is what the next submission meets."""

from typing import Any

import msgspec
import pytest

from tests.contract.situations import submit_count
from tests.kit import Kit
from tideq.queue_core.errors import TooManySubmissions
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.task import NewTask, RateLimitState


async def bucket_after(kit: Kit, count: int = 1, **fields: Any) -> RateLimitState:
    (*_, last) = await kit.queue.submit_many([NewTask(task_type="resize", **fields)] * count)
    assert last.bucket is not None
    return last.bucket


async def refusal(kit: Kit, count: int = 1) -> TooManySubmissions:
    with pytest.raises(TooManySubmissions) as refused:
        await submit_count(kit, count)
    return refused.value


class TestWithALimit:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=msgspec.structs.replace(Admission(), client_rate_per_second=0.5, client_burst=4))

    async def test_a_submission_tells_what_is_left_and_when_the_bucket_is_full(self, kit: Kit) -> None:
        first = await bucket_after(kit)
        rest = await bucket_after(kit, 3)

        assert (first.size, first.window_ms, first.left, first.full_in_ms) == (4, 8_000, 3, 2_000)
        assert (rest.left, rest.full_in_ms > 6_000) == (0, True)

    async def test_what_is_left_can_be_submitted_and_no_more(self, kit: Kit) -> None:
        left = (await bucket_after(kit)).left

        assert (await bucket_after(kit, left)).left == 0
        assert (await refusal(kit)).bucket.left == 0

    async def test_a_refusal_spends_nothing(self, kit: Kit) -> None:
        before = await bucket_after(kit, 2)

        refused = await refusal(kit, 3)

        assert (refused.bucket.size, refused.bucket.window_ms, refused.bucket.left) == (4, 8_000, before.left)
        assert refused.bucket.full_in_ms <= before.full_in_ms

    async def test_the_bucket_is_full_when_it_said_it_would_be(self, kit: Kit) -> None:
        await kit.clock.advance((await bucket_after(kit, 4)).full_in_ms)

        assert (await bucket_after(kit)).left == 3

    async def test_a_repeated_submission_tells_the_bucket_and_takes_nothing(self, kit: Kit) -> None:
        first = await bucket_after(kit, idempotency_key="k")

        again = await bucket_after(kit, idempotency_key="k")

        assert (again.left, again.size) == (first.left, first.size)
        assert again.full_in_ms <= first.full_in_ms

    async def test_another_clients_bucket_is_its_own(self, kit: Kit) -> None:
        await bucket_after(kit, 4)

        assert (await bucket_after(kit, client_id="other")).left == 3


class TestARateThatRoundsBadly:
    """A sixth of a second is no whole number of microseconds: what rounding adds must not cost a submission."""

    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=msgspec.structs.replace(Admission(), client_rate_per_second=6, client_burst=6))

    async def test_as_many_fit_into_one_instant_as_the_bucket_is_large(self, kit: Kit) -> None:
        first = await bucket_after(kit)
        await kit.clock.stop()

        assert [first.left] + [(await bucket_after(kit)).left for _ in range(5)] == [5, 4, 3, 2, 1, 0]
        await refusal(kit)


async def test_without_a_limit_nothing_is_told(kit: Kit) -> None:
    (submitted,) = await kit.queue.submit_many([NewTask(task_type="resize")])

    assert submitted.bucket is None
