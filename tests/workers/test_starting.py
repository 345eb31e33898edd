"""Who starts a task: the service as it hands it out, unless a handler could keep the worker from hearing of it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.workers.scripted import HANG_UP, Json, Reply, ScriptedService, obliging, scripted_service
from tests.workers.waiting import until
from tideq.queue_core.background import background_task
from tideq.workers.runtime.handlers import Handler, HandlerOptions, Handlers
from tideq.workers.runtime.worker_process import WorkerProcess, WorkerSettings

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


def _worker(
    service: ScriptedService, *functions: Callable[[], Any], apart: HandlerOptions | None = None
) -> WorkerProcess:
    """The first has the type of the task."""
    handlers = Handlers()
    for task_type, function in zip(("first", "second"), functions, strict=False):
        handlers.add(Handler(task_type, function, options=apart if task_type == "second" else None))
    return WorkerProcess(WorkerSettings(url=service.url, concurrency=5), handlers)


async def _instant() -> None:
    pass


async def test_a_task_that_comes_started_begins_without_another_word(service: ScriptedService) -> None:
    service.script = Giver()

    async with background_task(_worker(service, _instant).run()):
        await until(lambda: bool(service.rows("results")))

    assert [row["lease"] for row in service.rows("results")] == ["1"]
    assert not service.rows("starts")
    assert not service.bodies("start")


async def test_an_older_service_is_not_asked_for_what_it_does_not_know(service: ScriptedService) -> None:
    service.script = giver = Giver(can_start=False)

    async with background_task(_worker(service, _instant).run()):
        await until(lambda: bool(service.rows("results")) and len(giver.asked) >= 3)

    assert set(giver.asked) == {WAITS_ASSIGNED}
    assert [row["lease"] for row in service.rows("starts")] == ["1"]


async def test_a_worker_at_rest_waits_for_tasks_that_come_started(service: ScriptedService) -> None:
    service.script = giver = Giver()

    async with background_task(_worker(service, _instant).run()):
        await until(lambda: len(giver.asked) >= 4)

    assert set(giver.asked) == {WAITS_STARTED}


async def test_while_a_handler_runs_on_the_loop_it_looks_and_then_waits_for_assigned_ones(
    service: ScriptedService,
) -> None:
    service.script = giver = Giver()
    is_over = asyncio.Event()

    async def first() -> None:
        await is_over.wait()

    async with background_task(_worker(service, first).run()):
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

    async with background_task(_worker(service, first).run()):
        await until(lambda: len(giver.asked) >= 4)
        is_over.set()

    assert set(giver.asked) == {WAITS_STARTED}


async def test_crews_that_share_a_loop_with_handlers_do_not_wait_for_started_tasks(service: ScriptedService) -> None:
    """A poll of one waits while another begins what may block it."""
    service.script = giver = Giver()

    async with background_task(_worker(service, _instant, _instant, apart=HandlerOptions(concurrency=1)).run()):
        await until(lambda: len(giver.asked) >= 6)

    assert WAITS_STARTED not in giver.asked


async def test_what_was_not_answered_is_asked_for_as_it_was(service: ScriptedService) -> None:
    service.script = giver = Giver(lost_answers=2)

    async with background_task(_worker(service, _instant).run()):
        await until(lambda: len(giver.asked) >= 4)

    assert giver.asked[:3] == [WAITS_STARTED] * 3
    assert len(set(giver.poll_ids[:3])) == 1
    assert giver.poll_ids[3] != giver.poll_ids[2]


class Keeper(Giver):
    """Gives what it is asked for out of a stock, the same again to the same poll; loses answers when told to."""

    def __init__(self, stock: int) -> None:
        super().__init__()
        self.left = [f"{number}" for number in range(stock)]
        self.held: set[str] = set()
        self.done: list[str] = []
        self.most_held = 0
        self.order: list[str] = []
        self.loses = False
        self.timeout_seconds = 60.0
        self._given: dict[str, list[str]] = {}

    async def __call__(self, path: str, body: Json) -> Reply | None:
        reply = await obliging(path, {**body, "wait_seconds": 0.02} if body.get("wait_seconds") else body)
        if path.endswith("/register"):
            reply.body["can_start_claimed"] = True
        for row in (*body.get("results", ()), *body.get("releases", ())):
            self.held.discard(row["lease"])
            self.done.append(row["lease"])
        if body.get("available_capacity"):
            self.order.append(body["poll_id"])
            given = self._claim(body["poll_id"], body["available_capacity"])
            reply.body["tasks"] = [self._task(lease) for lease in given]
            if self.loses and given:
                self.loses = False
                return HANG_UP
        return reply

    def _claim(self, poll_id: str, wanted: int) -> list[str]:
        if not self._given.get(poll_id):
            self._given[poll_id], self.left = self.left[:wanted], self.left[wanted:]
            self.held.update(self._given[poll_id])
        self.most_held = max(self.most_held, len(self.held))
        return [lease for lease in self._given[poll_id] if lease in self.held]

    def _task(self, lease: str) -> Json:
        held = {"task_id": f"t{lease}", "lease": lease, "attempt": 1, "timeout_seconds": self.timeout_seconds}
        return {"task_type": "first", "parameters": {}, "traceparent": None, "status": "executing", **held}


async def test_a_lost_answer_is_asked_for_again_before_anything_else_however_much_there_is_to_tell(
    service: ScriptedService,
) -> None:
    """What was started for it would be held until its deadline."""
    service.script = keeper = Keeper(1)
    go_on = asyncio.Event()

    async def first() -> None:
        await go_on.wait()

    async with background_task(_worker(service, first).run()):
        await until(lambda: keeper.held == {"0"})
        keeper.left, keeper.loses = ["1", "2"], True
        await until(lambda: not keeper.loses)
        lost = keeper.order[-1]
        keeper.left = [f"{number}" for number in range(3, 40)]
        go_on.set()
        await until(lambda: len(set(keeper.done)) == 40)

    assert keeper.order[keeper.order.index(lost) + 1] == lost
    assert keeper.most_held <= 5


async def test_what_was_started_long_before_it_arrived_is_asked_about_first(service: ScriptedService) -> None:
    """The worker may have been stopped in between, and the task be another's."""
    service.script = keeper = Keeper(1)
    keeper.timeout_seconds = 0.0001

    async with background_task(_worker(service, _instant).run()):
        await until(lambda: bool(service.rows("starts")))

    assert [row["lease"] for row in service.rows("starts")] == ["0"]


async def test_a_service_that_went_back_to_an_older_version_is_asked_as_that_one_was(service: ScriptedService) -> None:
    giver = Giver()

    async def older(path: str, body: Json) -> Reply | None:
        if "start_claimed" in body:
            return Reply(422, {"type": "https://tideq.dev/problems/invalid-request", "detail": "start_claimed"})
        return await giver(path, body)

    service.script = older

    async with background_task(_worker(service, _instant).run()):
        await until(lambda: bool(service.rows("results")))

    assert set(giver.asked) == {WAITS_ASSIGNED}


async def test_a_pause_hands_back_what_was_started_for_the_poll_it_broke_off(service: ScriptedService) -> None:
    keeper, may_answer = Keeper(1), asyncio.Event()
    worker = _worker(service, _instant)

    async def slow(path: str, body: Json) -> Reply | None:
        reply = await keeper(path, body)
        if path.endswith("/poll") and keeper.held:
            await may_answer.wait()  # its caller has gone by then
        return reply

    service.script = slow

    async with background_task(worker.run()):
        await until(lambda: keeper.held == {"0"})
        worker.pause()
        await asyncio.sleep(0.05)
        may_answer.set()
        await until(lambda: keeper.done == ["0"])

    assert [row["lease"] for row in service.rows("releases")] == ["0"]
    assert not service.rows("results")


async def test_a_refused_bundle_is_still_asked_with_for_what_may_have_been_started(service: ScriptedService) -> None:
    """Its first sending was heard, and the answer lost; the second is refused for what it tells."""
    keeper, bundles = Keeper(1), list[str]()

    async def refusing(path: str, body: Json) -> Reply | None:
        if not (path.endswith("/sync") and body.get("results") and body.get("available_capacity")) or len(bundles) == 2:
            return await keeper(path, body)
        bundles.append(body["poll_id"])
        if len(bundles) == 2:
            return Reply(422, {"type": "https://tideq.dev/problems/invalid-request", "detail": "as the test says"})
        keeper.left = ["1"]
        await keeper(path, body)
        return HANG_UP

    service.script = refusing

    async with background_task(_worker(service, _instant).run()):
        await until(lambda: "1" in keeper.done)

    alone = [body["poll_id"] for body in service.bodies("sync") if body.get("poll_id") and not body.get("results")]
    assert bundles[0] == bundles[1] == alone[0]


async def test_a_worker_that_was_stopped_before_it_runs_never_calls_the_service(service: ScriptedService) -> None:
    worker = _worker(service, _instant)

    worker.stop()
    await worker.run()

    assert not service.heard
