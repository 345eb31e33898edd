"""Three ways to write application code, and one engine underneath."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

import tideq
from tideq import Fail, TaskContext, task, tq
from tideq.client import Client


@pytest.fixture
def working(client: Client) -> Iterator[Client]:
    """Everything registered when the test begins to wait is done in this very process."""
    yield client
    tideq.stop(10)


def test_a_decorated_function_runs_here_when_called_and_on_a_worker_when_submitted(working: Client) -> None:
    @task
    def double(number: int) -> int:
        return number * 2

    tideq.start()
    submitted = double.submit(21)

    assert double(4) == 8
    assert working.wait(submitted.task_id, 10).result == 42


def test_options_of_the_decorator_travel_with_the_submission_and_can_be_changed_for_one(client: Client) -> None:
    @task(name="images.resize", max_retries=7, timeout=30, tags={"team": "web"})
    def resize(url: str, width: int = 640) -> None: ...

    usual = client.get(resize.submit("a.png").task_id)
    urgent = client.get(resize.options(priority="high", delay_seconds=3600).submit(url="b.png", width=1).task_id)

    assert (usual.task_type, usual.max_retries, usual.timeout_seconds) == ("images.resize", 7, 30)
    assert (usual.parameters, usual.tags) == ({"url": "a.png"}, {"team": "web"})
    assert (urgent.priority, urgent.max_retries, urgent.parameters) == ("high", 7, {"url": "b.png", "width": 1})
    assert urgent.visible_at is not None


def test_many_are_submitted_at_once_and_delay_is_submit(working: Client) -> None:
    @task
    async def add(a: int, b: int = 1) -> int:
        await asyncio.sleep(0)
        return a + b

    tideq.start()
    submitted = [*add.submit_many([{"a": 1}, {"a": 2, "b": 2}]), add.delay(5)]

    assert [working.wait(each.task_id, 10).result for each in submitted] == [2, 4, 6]


def test_a_wrong_call_fails_before_anything_is_submitted(client: Client) -> None:
    @task
    def resize(url: str) -> None: ...

    with pytest.raises(TypeError):
        resize.submit(colour="red")  # pyright: ignore[reportCallIssue]
    assert client.queue.stats().queue.total_depth == 0


def test_the_context_is_given_by_the_worker_and_never_submitted(working: Client) -> None:
    @task
    def count(ctx: TaskContext, to: int) -> str:
        ctx.progress(50, "half-way")
        return f"{ctx.task_type} {ctx.attempt} {to}"

    tideq.start()
    done = working.wait(count.submit(to=3).task_id, 10)

    assert count(to=4) == "count 1 4"
    assert (done.parameters, done.result) == ({"to": 3}, "count 1 3")


class Page(msgspec.Struct):
    url: str
    depth: int = 0


def test_a_chain_names_worker_slots_and_rate_and_hands_in_work(working: Client) -> None:
    def crawl(page: Page) -> str:
        return f"{page.url} at {page.depth}"

    tq("crawl", Page).set_worker(crawl).set_worker_count(2).set_rate_limit(1000).set_timeout(5)
    tideq.start()
    first = working.wait(tq("crawl", Page).add(Page("a"), priority="high").task_id, 10)
    rest = [working.wait(each.task_id, 10) for each in tq("crawl", Page).add_many([Page("b", 1), Page("c")])]

    assert (first.result, first.priority, first.timeout_seconds) == ("a at 0", "high", 5)
    assert [each.result for each in rest] == ["b at 1", "c at 0"]


def test_a_payload_of_another_shape_fails_without_a_retry_and_says_where(working: Client) -> None:
    def crawl(page: Page) -> None: ...

    tq("crawl", dict[str, object]).set_worker(crawl)
    tideq.start()
    failed = working.wait(tq("crawl", dict[str, object]).add({"url": 5}).task_id, 10)

    assert (failed.status, failed.attempt) == ("failed", 1)
    assert failed.error is not None
    assert "$.url" in failed.error.message


def test_a_failure_may_say_that_trying_again_is_no_use(working: Client) -> None:
    @task(max_retries=5)
    def refuse() -> None:
        raise Fail("no such customer", code="NO_CUSTOMER")

    tideq.start()
    failed = working.wait(refuse.submit().task_id, 10)

    assert failed.status == "failed"
    assert failed.error is not None
    assert (failed.error.message, failed.error.code) == ("no such customer", "NO_CUSTOMER")


def test_a_paused_process_takes_nothing_until_it_is_resumed(working: Client) -> None:
    @task
    def noop() -> None: ...

    handle = tideq.start()
    working.wait(noop.submit().task_id, 10)
    handle.pause()
    waiting = noop.submit().task_id

    assert handle.stats().is_paused
    assert working.wait(waiting, 1).status == "queued"
    handle.resume()
    assert working.wait(waiting, 10).status == "completed"


def test_what_this_process_can_run_is_listed_with_what_its_submissions_say() -> None:
    @task(max_retries=5, timeout=30)
    def one() -> None: ...

    def two(payload: dict[str, object]) -> None: ...

    tq("two").set_worker(two).set_timeout(7)
    known = tideq.get_registered_tasks()

    assert {name: tuple(known[name]) for name in known} == {
        "one": (known["one"].function, {"max_retries": 5, "timeout_seconds": 30}),
        "two": (two, {"timeout_seconds": 7}),
    }


def test_two_functions_for_one_type_are_refused() -> None:
    @task("same")
    def one() -> None: ...

    with pytest.raises(TypeError, match="same has a handler already"):

        @task(name="same")
        def two() -> None: ...
