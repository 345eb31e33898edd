"""Asking for work with reports: fewer requests, never more tasks than slots, nothing lost or begun too late."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.workers.scripted import HANG_UP, Json, Reply, ScriptedService, obliging, scripted_service
from tests.workers.waiting import until
from tideq.queue_core.background import background_task
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.poller import Poller
from tideq.workers.runtime.reporter import Reporter
from tideq.workers.runtime.service_api import ServiceApi
from tideq.workers.runtime.slots import Slots
from tideq.workers.runtime.worker_process import WorkerProcess, WorkerSettings

SLOTS = 5
TASKS = 40

either_way = pytest.mark.parametrize("starts", [False, True], ids=["an older service", "tasks come started"])


class Stock:
    """A service with so many tasks, which gives as many as it is asked for and counts what it has given away."""

    def __init__(self, count: int, *, starts: bool = False) -> None:
        self.starts = starts
        """What it gives away is executing."""
        self.left = [f"{number}" for number in range(count)]
        self.held: set[str] = set()
        self.done: list[str] = []
        self.most = 0
        """Tasks that one worker could have had to hold at once."""
        self.lost_answers = 0
        self._given: dict[str, list[str]] = {}
        self.before_claim = asyncio.Event()
        self.before_claim.set()

    async def __call__(self, path: str, body: Json) -> Reply | None:
        reply = await obliging(path, {**body, "wait_seconds": 0} if self.left else body)
        self._settle(body)
        if path.endswith("/register"):
            reply.body["can_start_claimed"] = self.starts
        assert body.get("start_claimed", False) == (self.starts and "available_capacity" in body)
        wanted = body.get("available_capacity", 0)
        if not wanted:
            return reply
        if path.endswith("/sync"):
            await self.before_claim.wait()
        reply.body["tasks"] = [_given(lease, starts=self.starts) for lease in self._claim(body["poll_id"], wanted)]
        if path.endswith("/sync") and self.lost_answers:
            self.lost_answers -= 1
            return HANG_UP
        return reply

    def _settle(self, body: Json) -> None:
        for row in body.get("results", ()):
            self.held.discard(row["lease"])
            self.done.append(row["lease"])
        for row in body.get("releases", ()):
            self.held.discard(row["lease"])

    def _claim(self, poll_id: str, wanted: int) -> list[str]:
        """The same poll again is given the same."""
        if poll_id not in self._given:
            self._given[poll_id], self.left = self.left[:wanted], self.left[wanted:]
            self.held.update(self._given[poll_id])
        self.most = max(self.most, len(self.held))
        return self._given[poll_id]


def _given(lease: str, *, starts: bool = False) -> Json:
    fields = {"task_id": f"t{lease}", "lease": lease, "attempt": 1, "timeout_seconds": 60.0}
    fields["status"] = "executing" if starts else "assigned"
    return {"task_type": "instant", "parameters": {}, "traceparent": None, **fields}


@pytest.fixture
async def service() -> AsyncIterator[ScriptedService]:
    async with scripted_service() as service:
        yield service


@pytest.fixture
def begun() -> list[str]:
    return []


@pytest.fixture
async def worker(service: ScriptedService, begun: list[str]) -> WorkerProcess:
    async def instant() -> None:
        begun.append("one")

    handlers = Handlers()
    handlers.add(Handler("instant", instant))
    return WorkerProcess(WorkerSettings(url=service.url, concurrency=SLOTS), handlers)


@either_way
async def test_tasks_that_take_no_time_are_asked_for_with_the_results_of_the_last(
    service: ScriptedService, worker: WorkerProcess, *, starts: bool
) -> None:
    service.script = stock = Stock(TASKS, starts=starts)

    async with background_task(worker.run()):
        await until(lambda: len(stock.done) == TASKS)

    asking = [body for body in service.bodies("sync") if body.get("available_capacity")]
    assert len(service.bodies("poll")) < TASKS / SLOTS / 2
    assert len(service.rows("starts")) == (0 if starts else TASKS)
    assert all(body["results"] and "starts" not in body for body in asking)
    assert sorted(map(int, stock.done)) == list(range(TASKS))
    assert stock.most <= SLOTS


@either_way
async def test_what_was_asked_for_and_not_answered_is_asked_for_again(
    service: ScriptedService, worker: WorkerProcess, *, starts: bool
) -> None:
    service.script = stock = Stock(TASKS, starts=starts)
    stock.lost_answers = 2

    async with background_task(worker.run()):
        await until(lambda: len(set(stock.done)) == TASKS)

    asking = [body["poll_id"] for body in service.bodies("sync") if body.get("available_capacity")]
    assert asking[0] == asking[1] == asking[2] != asking[3]
    assert stock.most <= SLOTS


@either_way
@pytest.mark.parametrize("how", ["stop", "pause"])
async def test_what_comes_when_nothing_is_to_be_begun_any_more_goes_back(
    service: ScriptedService, worker: WorkerProcess, begun: list[str], how: str, *, starts: bool
) -> None:
    service.script = stock = Stock(2 * SLOTS, starts=starts)
    stock.before_claim.clear()

    async with background_task(worker.run()):
        await until(lambda: bool([body for body in service.bodies("sync") if body.get("available_capacity")]))
        getattr(worker, how)()
        stock.before_claim.set()
        await until(lambda: not stock.held and not stock.left)

    assert len(begun) == len(stock.done) == SLOTS


async def test_slots_are_kept_for_what_was_asked_for_until_it_is_answered() -> None:
    protocol, slots = ServiceApi("http://127.0.0.1:1"), Slots(SLOTS)
    reporter = Reporter(protocol, lambda _id, _answer: None, lambda _: None, lambda _: None)
    claimer = Poller(
        protocol,
        {},
        slots,
        None,
        reporter,
        lambda _: None,
        lambda _id, _answer, _at: None,
        lambda _: None,
        lambda: True,
    )
    claimer.worker_id = "w1"

    first, free_meanwhile = claimer.claim_now("w1", claim_new=True), slots.free
    again = claimer.claim_now("w1", claim_new=False)
    claimer.handle_reply("w1", None)

    assert (first["available_capacity"], free_meanwhile, slots.free) == (SLOTS, 0, SLOTS)
    assert again == first
    assert claimer.claim_now("w1", claim_new=False) == claimer.claim_now("w2", claim_new=True) == {}


async def test_a_few_tasks_are_started_before_more_are_polled_for(service: ScriptedService) -> None:
    """Their handlers wait for it; a service does one thing at a time."""
    order = list[str]()

    async def one_task(path: str, body: Json) -> Reply | None:
        is_first = path.endswith("/poll") and "poll" not in order
        if path.endswith("/poll"):
            order.append("poll")
        if body.get("starts"):
            await asyncio.sleep(0.05)  # in which a poll that does not wait for it would come
            order.append("started")
        reply = await obliging(path, {**body, "wait_seconds": 0} if is_first else body)
        if is_first:
            reply.body["tasks"] = [_given("1")]
        return reply

    async def instant() -> None:
        pass

    service.script = one_task
    handlers = Handlers()
    handlers.add(Handler("instant", instant))

    async with background_task(WorkerProcess(WorkerSettings(url=service.url, concurrency=200), handlers).run()):
        await until(lambda: len(order) == 3)

    assert order == ["poll", "started", "poll"]
