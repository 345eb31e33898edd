"""The reporter: what it says when the service answers wrongly, hangs up, forgets, or refuses."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from tests.api.bench import Bench, Json
from tests.api.proxy import proxying
from tests.api.running import Running
from tests.kit import Kit
from tests.workers.scripted import HANG_UP, Reply, ScriptedService, obliging, problem, scripted_service
from tests.workers.waiting import until
from tideq.queue_core.background import background_task
from tideq.workers.runtime.report_buffer import HeldTask, ReportBuffer, Result
from tideq.workers.runtime.reporter import MANY_REPORTS, MAX_IN_FLIGHT, Reporter
from tideq.workers.runtime.service_api import RowOutcome, ServiceApi, ServiceReply


@dataclass
class Desk:
    """A reporter at work, and what it told."""

    mailbox: ReportBuffer
    reporter: Reporter
    lost: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])
    answers: list[ServiceReply] = field(default_factory=list[ServiceReply])

    async def delivered(self) -> None:
        async with asyncio.timeout(20):
            await self.reporter.all_delivered()


@contextlib.asynccontextmanager
async def desk_at(url: str, worker_id: str = "w1") -> AsyncGenerator[Desk]:
    lost, unknown, answers = list[str](), list[str](), list[ServiceReply]()
    async with ServiceApi(url) as protocol:
        reporter = Reporter(protocol, lambda _, answer: answers.append(answer), lost.append, unknown.append)
        async with background_task(reporter.run()) as job:
            yield Desk(reporter.new_buffer(worker_id), reporter, lost, unknown, answers)
            assert not job.done(), "the reporter has ended"


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedService]:
    async with scripted_service() as service:
        yield service


@pytest.fixture
async def desk(scripted: ScriptedService) -> AsyncIterator[Desk]:
    async with desk_at(scripted.url) as desk:
        yield desk


def success(name: str, value: Any = None) -> Result:
    return Result(task_id=f"t{name}", lease=name, status="completed", result=msgspec.Raw(msgspec.json.encode(value)))


def failing_at_first(reply: Reply | None, times: int = 2) -> Any:
    """An obliging service, after so many calls that end like this."""
    left = times

    async def script(path: str, body: Json) -> Reply | None:
        nonlocal left
        left -= 1
        return await obliging(path, body) if left < 0 else reply

    return script


@pytest.mark.parametrize(
    "reply",
    [
        HANG_UP,
        Reply(500, b"oops"),
        Reply(503, {"detail": "closing"}, "Retry-After: 0\r\n"),
        Reply(502, b"<html>bad gateway</html>"),
        Reply(404, b"<html>default backend</html>"),
        Reply(404, {"detail": "of somebody else"}),
        Reply(200, b"<html>log in first</html>"),
        Reply(200, b"\xff\xfe"),
        problem(401, "unauthorized"),
        problem(403, "forbidden"),
        problem(429, "too-many"),
    ],
    ids=["hang up", "500", "503", "502", "404 html", "404 json", "200 html", "200 bytes", "401", "403", "429"],
)
async def test_what_says_nothing_about_a_report_does_not_lose_it(
    scripted: ScriptedService, desk: Desk, reply: Reply | None
) -> None:
    scripted.script = failing_at_first(reply)

    desk.mailbox.finish([success("a"), success("b")])
    await desk.delivered()

    assert len(scripted.bodies("sync")) == 3
    assert [row["lease"] for row in scripted.bodies("sync")[-1]["results"]] == ["a", "b"]
    assert (desk.lost, desk.unknown, desk.reporter.unsent_count) == ([], [], 0)


async def test_a_report_whose_answer_is_lost_is_repeated_and_accepted_once(
    service: Running, bench: Bench, kit: Kit
) -> None:
    worker_id = await bench.register(task_types=["carry"], capacity=5)
    ids = [await bench.submit("carry") for _ in range(3)]
    tasks = (await bench.poll(worker_id, available_capacity=3))["tasks"]

    async with proxying(service.url) as proxy, desk_at(f"http://127.0.0.1:{proxy.port}", worker_id) as desk:
        proxy.resets_before = lambda _: proxy.reset_count < 2
        outcomes = await desk.mailbox.start([HeldTask(task["task_id"], task["lease"]) for task in tasks])
        proxy.reset_count = 0
        desk.mailbox.finish([_settled(task) for task in tasks])
        await desk.delivered()
        resets = proxy.reset_count

    assert resets == 2
    assert [outcome.ok for outcome in outcomes] == [True] * 3
    assert desk.lost == []
    # Submitted, claimed, started, completed: heard three times each, and done once.
    assert [(await bench.read(task_id))["version"] for task_id in ids] == [4] * 3
    await bench.call("DELETE", f"/internal/workers/{worker_id}")


def _settled(task: Json) -> Result:
    return Result(task_id=task["task_id"], lease=task["lease"], status="completed", result=msgspec.Raw(b"1"))


async def test_each_outcome_is_heard_by_whom_it_is_about(bench: Bench, kit: Kit, service: Running) -> None:
    """One bundle with every kind of report, of each one that is accepted and one that is refused."""
    worker_id = await bench.register(task_types=["carry"], capacity=9)
    for _ in range(9):
        await bench.submit("carry")
    tasks = (await bench.poll(worker_id, available_capacity=9))["tasks"]
    for task in tasks[1:5]:
        await bench.tell(worker_id, "start", task)
    good, bad = tasks[:5], [{**task, "lease": f"{task['lease']}x"} for task in tasks[4:9]]

    async with desk_at(service.url, worker_id) as desk:
        box = desk.mailbox
        box.finish([_settled(bad[3]), _settled(good[3])])
        for task in (bad[1], good[1]):
            box.progress(task["task_id"], task["lease"], 50, "half")
        for task in (good[2], bad[2]):
            box.extend(task["task_id"], task["lease"], 60)
        box.release([HeldTask(task["task_id"], task["lease"]) for task in (bad[4], good[4])])
        outcomes = await box.start([HeldTask(task["task_id"], task["lease"]) for task in (bad[0], good[0])])
        await desk.delivered()

    assert [outcome.ok for outcome in outcomes] == [False, True]
    assert sorted(desk.lost) == sorted(task["lease"] for task in bad[1:])
    states = [(await bench.read(task["task_id"]))["status"] for task in good]
    assert states == ["executing", "executing", "executing", "completed", "queued"]
    await bench.call("DELETE", f"/internal/workers/{worker_id}")
    for task in tasks:
        await bench.http.delete(f"/api/v1/tasks/{task['task_id']}")


async def test_one_report_that_cannot_be_taken_does_not_spoil_the_others(scripted: ScriptedService, desk: Desk) -> None:
    async def script(path: str, body: Json) -> Reply | None:
        if path.endswith("/sync") and "results" in body:
            return problem(413, "payload-too-large")
        if path.endswith("/result") and body["lease"] == "large" and body["status"] == "completed":
            return problem(413, "payload-too-large")
        if path.endswith("/start") and body["lease"] == "lapsed":
            return problem(409, "stale-lease")
        return await obliging(path, body)

    scripted.script = script
    desk.mailbox.finish([success("a"), success("large", "x" * 1_000), success("b")])
    desk.mailbox.progress("tc", "c", 1, "")
    desk.mailbox.extend("td", "d", 1)
    desk.mailbox.release([HeldTask("te", "e")])
    outcomes = await desk.mailbox.start([HeldTask("tf", "lapsed"), HeldTask("tg", "g")])
    await desk.delivered()

    told = scripted.bodies("result")
    assert [(row["lease"], row["status"]) for row in told] == [
        ("a", "completed"),
        ("large", "completed"),
        ("large", "failed"),
        ("b", "completed"),
    ]
    assert told[2]["error"]["code"] == "INVALID_RESULT"
    assert not told[2]["error"]["retriable"]
    assert [outcome.ok for outcome in outcomes] == [False, True]
    assert [row["lease"] for verb in ("progress", "extend") for row in scripted.bodies(verb)] == ["c", "d"]
    assert [row["lease"] for row in scripted.bodies("sync")[-1]["releases"]] == ["e"]


async def test_a_service_that_goes_away_while_reports_are_told_one_by_one_gets_only_the_rest(
    scripted: ScriptedService, desk: Desk
) -> None:
    down = True

    async def script(path: str, body: Json) -> Reply | None:
        nonlocal down
        if path.endswith("/sync"):
            return problem(422, "invalid-request")
        if body["lease"] == "b" and down:
            down = False
            return HANG_UP
        return await obliging(path, body)

    scripted.script = script
    asking = asyncio.create_task(desk.mailbox.start([HeldTask("ts", "s")]))
    await asyncio.sleep(0)
    desk.mailbox.finish([success("a"), success("b"), success("c")])
    await desk.delivered()

    assert [outcome.ok for outcome in await asking] == [True]
    assert len(scripted.bodies("start")) == 1
    assert [row["lease"] for row in scripted.bodies("result")] == ["a", "b", "b", "c"]


async def test_results_of_a_worker_the_service_forgot_still_count_in_its_name(
    service: Running, bench: Bench, kit: Kit
) -> None:
    """As after a rebuild of the store: leases are honoured, workers have to register again."""
    worker_id = await bench.register(task_types=["carry"], capacity=2)
    ids = [await bench.submit("carry") for _ in range(2)]
    tasks = (await bench.poll(worker_id, available_capacity=2))["tasks"]
    await bench.tell(worker_id, "start", tasks[0])
    await kit.client.delete(kit.keys.prefix("worker") + worker_id)
    await kit.client.zrem(kit.keys.key("workers"), worker_id)

    async with desk_at(service.url, worker_id) as desk:
        desk.mailbox.finish([_settled(tasks[0])])
        (outcome,) = await desk.mailbox.start([HeldTask(tasks[1]["task_id"], tasks[1]["lease"])])
        desk.mailbox.finish([_settled(tasks[1])])
        await desk.delivered()

    assert outcome.ok
    assert set(desk.unknown) == {worker_id}
    assert desk.lost == []
    assert [(await bench.read(task_id))["status"] for task_id in ids] == ["completed"] * 2


async def test_reports_of_two_worker_ids_are_told_each_in_its_own_name(scripted: ScriptedService, desk: Desk) -> None:
    other = desk.reporter.new_buffer("w2")

    desk.mailbox.finish([success("a")])
    other.finish([success("b")])
    await desk.delivered()

    told = {path.split("/")[-2]: [row["lease"] for row in body["results"]] for path, body in scripted.heard}
    assert told == {"w1": ["a"], "w2": ["b"]}


async def test_a_service_that_is_away_costs_no_memory_however_much_is_said(
    scripted: ScriptedService, desk: Desk
) -> None:
    async def away(_path: str, _body: Json) -> Reply | None:
        return HANG_UP

    scripted.script = away
    desk.mailbox.finish([success("a")])

    def talk() -> None:
        for step in range(20_000):
            desk.mailbox.progress("tb", "b", step % 100, "x" * 100)
            desk.mailbox.extend("tb", "b", 1 + step % 60)

    await asyncio.to_thread(talk)
    await until(lambda: len(scripted.heard) >= 2)
    scripted.script = obliging
    await desk.delivered()

    bundle = scripted.bodies("sync")[-1]
    assert [len(bundle[name]) for name in ("progress", "extends", "results")] == [1, 1, 1]
    assert bundle["progress"][0]["progress_percent"] == 99
    assert bundle["extends"][0]["seconds"] == 60


async def test_what_threads_say_is_always_heard(scripted: ScriptedService, desk: Desk) -> None:
    """Also what is said in the very moment in which the reporter finds that there is nothing more to say."""
    rounds = 300

    def talk(name: str) -> None:
        for step in range(rounds):
            desk.mailbox.progress(f"t{name}", name, 1, str(step))

    threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await asyncio.sleep(0)
    await desk.delivered()

    last = {row["lease"]: row["status_message"] for row in scripted.rows("progress")}
    assert last == dict.fromkeys("abcd", str(rounds - 1))


async def test_a_thread_never_touches_the_loop_itself(scripted: ScriptedService, desk: Desk) -> None:
    """A loop that sleeps would not notice; one that looks for it complains in the thread."""
    loop = asyncio.get_running_loop()
    loop.set_debug(True)

    await asyncio.to_thread(desk.mailbox.progress, "ta", "a", 1.0, "")
    await asyncio.to_thread(desk.mailbox.extend, "ta", "a", 1.0)
    await until(lambda: scripted.rows("progress") and scripted.rows("extends"))
    loop.set_debug(False)


async def test_a_bundle_stays_below_what_a_request_may_hold(scripted: ScriptedService, desk: Desk) -> None:
    megabyte = "x" * 1_000_000

    desk.mailbox.finish([success(f"r{number}", megabyte) for number in range(20)])
    desk.mailbox.finish([success(f"s{number}") for number in range(1_200)])
    await desk.delivered()

    results = [body["results"] for body in scripted.bodies("sync")]
    assert sum(map(len, results)) == 1_220
    assert max(map(len, results)) <= 500
    assert max(len(msgspec.json.encode(rows)) for rows in results) < 6_000_000


async def test_a_reporter_that_is_broken_off_while_sending_has_said_nothing(scripted: ScriptedService) -> None:
    asked = asyncio.Event()

    async def hang(_path: str, _body: Json) -> Reply | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    scripted.script = hang
    async with ServiceApi(scripted.url) as protocol:
        reporter = Reporter(protocol, lambda _id, _answer: None, lambda _: None, lambda _: None)
        box = reporter.new_buffer("w1")
        async with background_task(reporter.run()):
            box.finish([success("a")])
            await asked.wait()
            under_way = reporter.unsent_count
        left = reporter.unsent_count
        scripted.script = obliging
        async with background_task(reporter.run()), asyncio.timeout(60):
            await reporter.all_delivered()

    assert (under_way, left, reporter.unsent_count) == (1, 1, 0)
    assert [row["lease"] for row in scripted.bodies("sync")[-1]["results"]] == ["a"]


async def test_silence_waits_also_for_what_an_answer_brings_about(scripted: ScriptedService, desk: Desk) -> None:
    async def start_then_release() -> list[RowOutcome]:
        outcomes = await desk.mailbox.start([HeldTask("ta", "a")])
        desk.mailbox.release([HeldTask("ta", "a")])
        return outcomes

    job = asyncio.create_task(start_then_release())
    await asyncio.sleep(0)
    await desk.delivered()

    assert job.done()
    assert [row["lease"] for row in scripted.rows("releases")] == ["a"]


class SlowService:
    """Keeps every request until the test lets it go; takes what it says then."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []

    async def script(self, path: str, body: Json) -> Reply | None:
        self.waiting.append(gate := asyncio.Event())
        await gate.wait()
        return await obliging(path, body)

    async def asked(self, count: int) -> None:
        await until(lambda: len(self.waiting) >= count)


def many(name: str, count: int = MANY_REPORTS) -> list[Result]:
    return [success(f"{name}{number}") for number in range(count)]


async def test_much_that_is_said_goes_beside_a_request_that_is_under_way(scripted: ScriptedService, desk: Desk) -> None:
    service = SlowService()
    scripted.script = service.script

    for number in range(MAX_IN_FLIGHT + 1):
        desk.mailbox.finish(many(f"{number}-"))
        await service.asked(min(number + 1, MAX_IN_FLIGHT))
    under_way = [len(body["results"]) for body in scripted.bodies("sync")]
    for gate in service.waiting:
        gate.set()
    await service.asked(MAX_IN_FLIGHT + 1)
    service.waiting[-1].set()
    await desk.delivered()

    assert under_way == [MANY_REPORTS] * MAX_IN_FLIGHT
    assert sorted(row["lease"] for row in scripted.rows("results")) == sorted(
        result.lease for number in range(MAX_IN_FLIGHT + 1) for result in many(f"{number}-")
    )


async def test_a_little_that_is_said_waits_for_the_request_that_is_under_way(
    scripted: ScriptedService, desk: Desk
) -> None:
    service = SlowService()
    scripted.script = service.script

    desk.mailbox.finish([success("a")])
    await service.asked(1)
    desk.mailbox.finish(many("b", MANY_REPORTS - 1))
    for _ in range(20):
        await asyncio.sleep(0)
    asked_beside = len(service.waiting) - 1
    service.waiting[0].set()
    await service.asked(2)
    service.waiting[1].set()
    await desk.delivered()

    assert asked_beside == 0
    assert [len(body["results"]) for body in scripted.bodies("sync")] == [1, MANY_REPORTS - 1]


async def test_silence_waits_for_every_request_that_is_under_way(scripted: ScriptedService, desk: Desk) -> None:
    service = SlowService()
    scripted.script = service.script
    desk.mailbox.finish(many("a"))
    await service.asked(1)
    desk.mailbox.finish(many("b"))
    await service.asked(2)

    service.waiting[1].set()
    await until(lambda: desk.reporter.unsent_count == MANY_REPORTS)
    async with background_task(desk.reporter.all_delivered()) as silence:
        await asyncio.sleep(0)
        was_silent = silence.done()
        service.waiting[0].set()
        await desk.delivered()

    assert not was_silent
    assert desk.reporter.unsent_count == 0


async def test_what_was_under_way_beside_another_is_not_lost_with_its_connection(
    scripted: ScriptedService, desk: Desk
) -> None:
    service, hung_up = SlowService(), asyncio.Event()

    async def hang_up_on_the_second(path: str, body: Json) -> Reply | None:
        if body["results"][0]["lease"] == "b0" and not hung_up.is_set():
            hung_up.set()
            return Reply(503, b"")
        return await service.script(path, body)

    scripted.script = hang_up_on_the_second
    desk.mailbox.finish(many("a"))
    await service.asked(1)
    desk.mailbox.finish(many("b"))
    await hung_up.wait()
    service.waiting[0].set()
    await service.asked(2)
    service.waiting[1].set()
    await desk.delivered()

    taken = [row["lease"] for body in scripted.bodies("sync")[2:] for row in body["results"]]
    assert taken == [result.lease for result in many("b")]
    assert (desk.lost, desk.reporter.unsent_count) == ([], 0)


async def test_only_one_request_at_a_time_asks_for_work(scripted: ScriptedService, desk: Desk) -> None:
    class Asking:
        def claim_now(self, worker_id: str, *, claim_new: bool) -> Json:
            return {"available_capacity": 1, "poll_id": "p"}

        def handle_reply(self, worker_id: str, reply: ServiceReply | None) -> None:
            pass

    desk.reporter.claims = Asking()
    service = SlowService()
    scripted.script = service.script

    desk.mailbox.finish(many("a"))
    await service.asked(1)
    desk.mailbox.finish(many("b"))
    await service.asked(2)
    for gate in service.waiting:
        gate.set()
    await desk.delivered()

    assert ["poll_id" in body for body in scripted.bodies("sync")] == [True, False]
