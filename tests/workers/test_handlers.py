"""Handlers in a real worker: what they are given, what becomes of what they return or raise."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.api.bench import Bench, Json
from tests.api.running import Running
from tests.workers.waiting import done
from tests.workers.workshop import Hand, Workshop, workshop

EVERYWHERE = ["add", "add_async", "add_in_process"]
FAILING = ["fail", "fail_async", "fail_in_process"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with workshop(tmp_path_factory.mktemp("handlers") / "shop") as shop:
        yield shop


@pytest.fixture(scope="module")
def hand(shared_service: Running, shop: Workshop) -> Hand:
    """One for all tests here, which is part of what they show."""
    return shop.hire(shared_service.url)


@pytest.fixture
async def bench(shared_service: Running, hand: Hand) -> AsyncIterator[Bench]:
    async with httpx.AsyncClient(base_url=shared_service.url, timeout=40) as client:
        yield Bench(client)
    assert hand.process.poll() is None, "a handler ended the worker"


@pytest.mark.parametrize("task_type", EVERYWHERE)
async def test_a_handler_is_called_with_its_arguments_wherever_it_runs(bench: Bench, task_type: str) -> None:
    task = await done(bench, task_type, {"a": 40})

    assert (task["status"], task["result"], task["attempt"]) == ("completed", 42, 1)


@pytest.mark.parametrize("task_type", EVERYWHERE)
@pytest.mark.parametrize(
    ("parameters", "named"),
    [({"a": "one"}, "`$.a`"), ({}, "`a`"), ({"a": 1, "c": 1}, "`c`")],
    ids=["mismatch", "missing", "unknown"],
)
async def test_arguments_it_does_not_take_fail_at_once_and_are_named(
    bench: Bench, task_type: str, parameters: Json, named: str
) -> None:
    task = await done(bench, task_type, parameters, max_retries=3)

    assert (task["status"], task["attempt"], task["retry_count"]) == ("failed", 1, 0)
    assert (task["error"]["code"], task["error"]["retriable"]) == ("INVALID_ARGUMENTS", False)
    assert named in task["error"]["message"]


async def test_structs_dataclasses_instants_and_the_rest_arrive_as_their_types_and_leave_as_json(bench: Bench) -> None:
    crop = {"size": {"width": 3}, "at": "2026-03-02T09:15:00Z"}

    task = await done(bench, "checked", {"size": {"width": 1}, "crops": [crop], "more": [1]})

    whole_crop = {"size": {"width": 3, "height": 480}, "at": "2026-03-02T09:15:00Z"}
    size = {"width": 1, "height": 480}
    assert task["result"] == {"size": size, "crops": [whole_crop], "percent": 50, "label": None, "rest": {"more": [1]}}


async def test_a_value_outside_its_bounds_is_named_however_deep(bench: Bench) -> None:
    crop = {"size": {"width": "wide"}, "at": "2026-03-02T09:15:00Z"}

    deep = await done(bench, "checked", {"size": {"width": 1}, "crops": [crop]})
    bounded = await done(bench, "checked", {"size": {"width": 1}, "crops": [], "percent": 101})

    assert (
        "`$.crops[0].size.width`" in deep["error"]["message"] or "`$.crops[...].size.width`" in deep["error"]["message"]
    )
    assert "`$.percent`" in bounded["error"]["message"]


async def test_a_payload_handler_gets_the_parameters_whole(bench: Bench) -> None:
    assert (await done(bench, "whole", {"x": [1, None]}))["result"] == {"x": [1, None]}


@pytest.mark.parametrize("task_type", FAILING)
@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("error", "dead_letter", "RuntimeError"),
        ("retry", "dead_letter", "RATE_LIMIT"),
        ("fail", "failed", "NO_SUCH_USER"),
        ("discard", "dead_letter", "STRANGE"),
        ("exit", "dead_letter", "SystemExit"),
        ("interrupt", "dead_letter", "KeyboardInterrupt"),
        ("cancelled", "dead_letter", "CancelledError"),
        ("strange", "dead_letter", "RuntimeError"),
    ],
)
async def test_what_a_handler_raises_is_told_and_ends_only_its_task(
    bench: Bench, task_type: str, how: str, status: str, code: str
) -> None:
    task = await done(bench, task_type, {"how": how}, max_retries=0)

    assert (task["status"], task["error"]["code"]) == (status, code)
    assert task["error"]["retriable"] == (how not in ("fail", "discard"))
    traceback = task["error"]["details"]["traceback"]
    assert f"in {task_type}" in traceback
    assert "raise FAILURES[how]" in traceback


async def test_a_failure_is_tried_again_as_often_as_it_may_be(bench: Bench) -> None:
    task = await done(bench, "fail", {"how": "error"}, max_retries=2)

    assert (task["status"], task["attempt"], task["retry_count"], task["losses"]) == ("dead_letter", 3, 2, 0)
    assert [error["code"] for error in task["errors"]] == ["RuntimeError"] * 3


async def test_details_a_handler_gives_are_kept(bench: Bench) -> None:
    task = await done(bench, "fail", {"how": "retry"}, max_retries=0)

    assert task["error"]["details"]["details"] == {"host": "10.0.0.7"}


@pytest.mark.parametrize("what", ["object", "surrogate", "number key", "endless", "nul", "deep", "large"])
async def test_a_result_that_cannot_be_delivered_fails_for_good_and_says_so(bench: Bench, what: str) -> None:
    task, other = await asyncio.gather(
        done(bench, "give", {"what": what}, max_retries=3), done(bench, "add", {"a": 1}, max_retries=3)
    )

    assert (task["status"], task["attempt"]) == ("failed", 1)
    assert (task["error"]["code"], task["error"]["retriable"]) == ("INVALID_RESULT", False)
    assert "result" in task["error"]["message"]
    assert (other["status"], other["attempt"]) == ("completed", 1)


async def test_nothing_a_handler_tells_its_context_spoils_its_task_or_another(bench: Bench) -> None:
    task, other = await asyncio.gather(done(bench, "babble"), done(bench, "add", {"a": 1}))

    assert (task["status"], task["result"], task["attempt"]) == ("completed", "done", 1)
    assert (other["status"], other["attempt"]) == ("completed", 1)


async def test_a_process_that_dies_fails_its_task_and_is_replaced(bench: Bench) -> None:
    task = await done(bench, "die", max_retries=1)
    after = await done(bench, "add_in_process", {"a": 1})

    assert (task["status"], task["attempt"], task["losses"]) == ("dead_letter", 2, 0)
    assert (task["error"]["code"], task["error"]["retriable"]) == ("PROCESS_ENDED", True)
    assert "-9" in task["error"]["message"]
    assert after["result"] == 3


async def test_processes_are_used_again(bench: Bench) -> None:
    pids = [(await done(bench, "compute", {"seconds": 0}))["result"] for _ in range(3)]

    assert len(set(pids)) == 1


async def test_a_crowd_of_tasks_of_every_kind_is_done_once_each(bench: Bench, shop: Workshop) -> None:
    kinds: list[tuple[str, Json]] = [*[("short", {}), ("short_async", {})] * 20, *[("add_in_process", {"a": 1})] * 3]

    tasks = await asyncio.gather(*(done(bench, kind, parameters) for kind, parameters in kinds))

    assert {(task["status"], task["attempt"]) for task in tasks} == {("completed", 1)}
    ours = {task["task_id"] for task in tasks}
    ended = [count for (task_id, _), count in shop.ledger.attempts("end").items() if task_id in ours]
    assert ended == [1] * 40
