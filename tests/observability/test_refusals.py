"""Refusals are counted by the problem that was told, from a closed set."""

import msgspec
import pytest

from tests.observability.conftest import Whole
from tests.observability.scrape import scrape
from tideq.queue_core.settings import Admission, QueueSettings

REFUSALS = "tideq_refusals_total"


@pytest.fixture
def queue_settings(queue_settings: QueueSettings) -> QueueSettings:
    return msgspec.structs.replace(queue_settings, admission=Admission(soft_depth=2, high_only_depth=2))


async def test_submissions_to_a_full_queue_are_counted(quiet: Whole) -> None:
    before = await scrape(quiet.http)
    answers = [await quiet.http.post("/api/v1/tasks", json={"task_type": "resize"}) for _ in range(5)]

    told = await scrape(quiet.http)

    refused = [answer for answer in answers if answer.status_code == 429]
    assert before.value(REFUSALS, problem="queue-full") == 0
    assert told.value(REFUSALS, problem="queue-full") == len(refused) > 0


async def test_what_a_sync_refuses_is_counted_too(quiet: Whole) -> None:
    worker_id = await quiet.bench.register()
    await quiet.bench.submit()
    task = await quiet.bench.started(worker_id)
    stale = {"task_id": task["task_id"], "lease": "1-gone-1"}
    await quiet.bench.try_tell(worker_id, "result", stale, status="completed", result=1)
    await quiet.bench.sync(worker_id, results=[{**stale, "status": "completed", "result": 1}] * 2)

    told = await scrape(quiet.http)

    assert told.value(REFUSALS, problem="stale-lease") == 3


async def test_who_is_turned_away_at_the_door_is_counted_once(quiet: Whole) -> None:
    quiet.service.authenticator._auth_disabled = False  # pyright: ignore[reportPrivateUsage]

    answer = await quiet.http.get("/api/v1/queue/stats")

    assert answer.status_code == 401
    assert quiet.service.metrics.refusals["unauthorized"] == 1


async def test_the_problem_is_the_only_thing_told(quiet: Whole) -> None:
    await quiet.http.post("/api/v1/tasks", json={"task_type": "hostile name"})
    await quiet.http.get("/api/v1/tasks/hostile")

    told = await scrape(quiet.http)

    assert set(told.values(REFUSALS, "problem")) >= {"task-not-found"}
    assert not [label for label in told.labels("problem") if "hostile" in label]
