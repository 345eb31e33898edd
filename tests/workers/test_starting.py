"""Who starts a task: the service as it hands it out, unless a handler could keep the worker from hearing of it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.workers.scripted import HANG_UP, Json, Reply, ScriptedService, obliging, scripted_service
from tests.workers.waiting import until
from tideq.queue_core.background import running
from tideq.workers.runtime.handlers import Handler, HandlerOptions, Handlers
from tideq.workers.runtime.worker import Worker, WorkerSettings

WAITS_STARTED, LOOKS_STARTED, WAITS_ASSIGNED = "waits, started", "looks, started", "waits, assigned"


class Giver:
    """Gives one task to the first poll; notes how each one asks."""

    def __init__(self, *, can_start: bool = True, lost_answers: int = 0) -> None:
        self.asked: list[str] = []
        self.poll_ids: list[str] = []
        self.has_given = False
        self._can_start = can_start
        self._lost_answers = lost_answers

    async def __call__(self, path: str, body: Json) -> Reply | None:
        is_poll = path.endswith("/poll")
        reply = await obliging(path, {**body, "wait_seconds": 0.02} if body.get("wait_seconds") else body)
        if path.endswith("/register"):
            reply.body["can_start_claimed"] = self._can_start
        if is_poll:
            waits, starts = bool(body["wait_seconds"]), body.get("start_claimed", False)
            self.asked.append(f"{'waits' if waits else 'looks'}, {'started' if starts else 'assigned'}")
            self.poll_ids.append(body["poll_id"])
            if self._lost_answers:
                self._lost_answers -= 1
                return HANG_UP
        if is_poll and not self.has_given:
            self.has_given = True
            status = "executing" if body.get("start_claimed") else "assigned"
            held = {"task_id": "t1", "lease": "1", "attempt": 1, "timeout_seconds": 60.0, "status": status}
            reply.body["tasks"] = [{"task_type": "first", "parameters": {}, "traceparent": None, **held}]
        return reply


@pytest.fixture
async def service() -> AsyncIterator[ScriptedService]:
    async with scripted_service() as service:
        yield service


def _worker(service: ScriptedService, *functions: Callable[[], Any], apart: HandlerOptions | None = None) -> Worker:
    """The first has the type of the task."""
    handlers = Handlers()
    for task_type, function in zip(("first", "second"), functions, strict=False):
        handlers.add(Handler(task_type, function, options=apart if task_type == "second" else None))
    return Worker(WorkerSettings(url=service.url, concurrency=5), handlers)


async def _instant() -> None:
    pass


async def test_a_task_that_comes_started_begins_without_another_word(service: ScriptedService) -> None:
    service.script = Giver()

    async with running(_worker(service, _instant).run()):
        await until(lambda: bool(service.rows("results")))

    assert [row["lease"] for row in service.rows("results")] == ["1"]
    assert not service.rows("starts")
    assert not service.bodies("start")


async def test_an_older_service_is_not_asked_for_what_it_does_not_know(service: ScriptedService) -> None:
    service.script = giver = Giver(can_start=False)

    async with running(_worker(service, _instant).run()):
        await until(lambda: bool(service.rows("results")) and len(giver.asked) >= 3)

    assert set(giver.asked) == {WAITS_ASSIGNED}
    assert [row["lease"] for row in service.rows("starts")] == ["1"]


async def test_a_worker_at_rest_waits_for_tasks_that_come_started(service: ScriptedService) -> None:
    service.script = giver = Giver()

    async with running(_worker(service, _instant).run()):
        await until(lambda: len(giver.asked) >= 4)

    assert set(giver.asked) == {WAITS_STARTED}


async def test_while_a_handler_runs_on_the_loop_it_looks_and_then_waits_for_assigned_ones(
    service: ScriptedService,
) -> None:
    service.script = giver = Giver()
    is_over = asyncio.Event()

    async def first() -> None:
        await is_over.wait()

    async with running(_worker(service, first).run()):
        await until(lambda: len(giver.asked) >= 5)
        during = list(giver.asked)
        is_over.set()
        await until(lambda: giver.asked[-1] == WAITS_STARTED)

    assert during[:5] == [WAITS_STARTED, LOOKS_STARTED, WAITS_ASSIGNED, WAITS_ASSIGNED, WAITS_ASSIGNED]


async def test_a_handler_in_a_thread_keeps_nobody_from_hearing(service: ScriptedService) -> None:
    service.script = giver = Giver()
    is_over = threading.Event()

    def first() -> None:
        is_over.wait(30)

    async with running(_worker(service, first).run()):
        await until(lambda: len(giver.asked) >= 4)
        is_over.set()

    assert set(giver.asked) == {WAITS_STARTED}


async def test_crews_that_share_a_loop_with_handlers_do_not_wait_for_started_tasks(service: ScriptedService) -> None:
    """A poll of one waits while another begins what may block it."""
    service.script = giver = Giver()

    async with running(_worker(service, _instant, _instant, apart=HandlerOptions(concurrency=1)).run()):
        await until(lambda: len(giver.asked) >= 6)

    assert WAITS_STARTED not in giver.asked


async def test_what_was_not_answered_is_asked_for_as_it_was(service: ScriptedService) -> None:
    service.script = giver = Giver(lost_answers=2)

    async with running(_worker(service, _instant).run()):
        await until(lambda: len(giver.asked) >= 4)

    assert giver.asked[:3] == [WAITS_STARTED] * 3
    assert len(set(giver.poll_ids[:3])) == 1
    assert giver.poll_ids[3] != giver.poll_ids[2]
