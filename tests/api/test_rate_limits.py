"""What a client is told that may submit only so much: the RateLimit headers, exact, on what is taken and what not."""

import math
import re
from typing import NamedTuple

import httpx
import pytest

from tests.api.bench import assert_problem
from tests.kit import Kit
from tideq.queue_core.settings import Admission, QueueSettings

TASKS = "/api/v1/tasks"
BATCH = "/api/v1/tasks/batch"
TASK = {"task_type": "resize"}


class Told(NamedTuple):
    quota: int
    window: int
    left: int
    full_in: int


def told(answer: httpx.Response) -> Told:
    """As a structured-field parser would read it: one item named "client", with whole-number parameters."""
    policy = re.fullmatch(r'"client";q=(\d+);w=(\d+)', answer.headers["ratelimit-policy"])
    state = re.fullmatch(r'"client";r=(\d+);t=(\d+)', answer.headers["ratelimit"])
    assert policy, answer.headers["ratelimit-policy"]
    assert state, answer.headers["ratelimit"]
    return Told(*map(int, (*policy.groups(), *state.groups())))


def tasks(count: int) -> dict[str, object]:
    return {"tasks": [TASK] * count}


class TestWithALimit:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=Admission(client_rate_per_second=0.1, client_burst=5))

    async def test_a_submission_tells_the_policy_and_what_is_left(self, http: httpx.AsyncClient, kit: Kit) -> None:
        answer = await http.post(TASKS, json=TASK)

        assert answer.status_code == 201
        assert told(answer) == Told(quota=5, window=50, left=4, full_in=10)

    async def test_a_batch_counts_every_task(self, http: httpx.AsyncClient, kit: Kit) -> None:
        answer = await http.post(BATCH, json=tasks(3))

        assert answer.status_code == 201
        assert told(answer) == Told(quota=5, window=50, left=2, full_in=30)

    async def test_a_refusal_tells_what_is_left_and_when_to_come_back(self, http: httpx.AsyncClient, kit: Kit) -> None:
        await http.post(BATCH, json=tasks(4))

        refused = await http.post(BATCH, json=tasks(2))

        assert_problem(refused, 429, "too-many-submissions")
        assert told(refused).left == 1
        assert 0 < int(refused.headers["retry-after"]) <= 10
        assert (await http.post(TASKS, json=TASK)).status_code == 201

    async def test_who_comes_back_when_told_is_let_in(self, http: httpx.AsyncClient, kit: Kit) -> None:
        await http.post(BATCH, json=tasks(5))
        refused = await http.post(TASKS, json=TASK)

        await kit.clock.advance(int(refused.headers["retry-after"]) * 1000)

        assert told(refused).left == 0
        assert (await http.post(TASKS, json=TASK)).status_code == 201

    async def test_the_bucket_is_full_again_when_told(self, http: httpx.AsyncClient, kit: Kit) -> None:
        spent = told(await http.post(BATCH, json=tasks(5)))

        await kit.clock.advance(spent.full_in * 1000)

        assert told(await http.post(TASKS, json=TASK)).left == 4

    async def test_a_repeated_submission_is_told_and_costs_nothing(self, http: httpx.AsyncClient, kit: Kit) -> None:
        keyed = {**TASK, "idempotency_key": "k"}

        first, again = [told(await http.post(TASKS, json=keyed)) for _ in range(2)]

        assert (first.left, again.left) == (4, 4)

    async def test_clients_have_buckets_of_their_own(self, http: httpx.AsyncClient, kit: Kit) -> None:
        await http.post(BATCH, json=tasks(5))

        assert told(await http.post(TASKS, json={**TASK, "client_id": "other"})).left == 4

    @pytest.mark.parametrize("path", [f"{TASKS}/nonsense", "/api/v1/queue/stats"])
    async def test_what_is_no_submission_is_told_nothing(self, http: httpx.AsyncClient, kit: Kit, path: str) -> None:
        assert "ratelimit" not in (await http.get(path)).headers


class TestAFractionOfASecond:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=Admission(client_rate_per_second=40, client_burst=3))

    async def test_seconds_are_rounded_up(self, http: httpx.AsyncClient, kit: Kit) -> None:
        answer = told(await http.post(TASKS, json=TASK))

        assert (answer.window, answer.full_in) == (math.ceil(3 / 40), 1)


async def test_without_a_limit_there_are_no_headers(http: httpx.AsyncClient, kit: Kit) -> None:
    answer = await http.post(TASKS, json=TASK)

    assert answer.status_code == 201
    assert not [name for name in answer.headers if name.startswith("ratelimit")]
