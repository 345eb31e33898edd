"""What application developers test with: the service in their own process, and a clock they move."""

import pytest

from tideq import Fail, TaskContext, task, tq
from tideq.testing import LocalService


def test_submitted_tasks_run_when_the_test_says_so(tideq_service: LocalService) -> None:
    @task
    def double(number: int) -> int:
        return number * 2

    task_id = double.submit(21).task_id
    before = tideq_service.client.get(task_id).status
    (done,) = tideq_service.run_pending()

    assert before == "queued"
    assert (done.task_id, done.status, done.result) == (task_id, "completed", 42)


def test_a_retry_waits_until_the_clock_is_moved(tideq_service: LocalService) -> None:
    attempts: list[int] = []

    @task
    async def flaky(ctx: TaskContext) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            raise RuntimeError("not yet")
        return "well"

    flaky.submit()
    (failed,) = tideq_service.run_pending()
    none = tideq_service.run_pending()
    tideq_service.advance(60)
    (done,) = tideq_service.run_pending()

    assert (failed.status, none, done.status, attempts) == ("queued", [], "completed", [1, 2])


def test_tasks_run_in_the_order_of_the_queue_and_may_submit_more(tideq_service: LocalService) -> None:
    ran: list[str] = []

    def visit(payload: dict[str, str]) -> None:
        ran.append(payload["page"])
        if payload["page"] == "a":
            tq("visit").add({"page": "a/1"}, priority="high")

    tq("visit").set_worker(visit)
    tq("visit").add({"page": "b"}, priority="low")
    tq("visit").add({"page": "a"}, priority="high")
    tideq_service.run_pending()

    assert ran == ["a", "a/1", "b"]


def test_delays_and_failures_are_the_real_ones(tideq_service: LocalService) -> None:
    @task(max_retries=0)
    def fail(kind: str) -> None:
        raise Fail(kind) if kind == "final" else RuntimeError(kind)

    fail.submit(kind="final")
    fail.submit(kind="passing")
    fail.options(delay_seconds=3600).submit(kind="late")
    now = sorted(done.status for done in tideq_service.run_pending())
    tideq_service.advance(3600)
    later = [done.status for done in tideq_service.run_pending()]

    assert (now, later) == (["dead_letter", "failed"], ["dead_letter"])


def test_each_test_has_an_empty_queue_of_its_own(tideq_service: LocalService) -> None:
    assert tideq_service.client.queue.stats().queue.total_depth == 0


def test_without_a_handler_running_says_so(tideq_service: LocalService) -> None:
    with pytest.raises(ValueError, match="no handler"):
        tideq_service.run_pending()
