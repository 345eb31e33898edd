"""A worker inside the test's loop, against a service that does what the test says."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from tests.workers.scripted import PROBLEMS, Json, Reply, ScriptedService, obliging, problem, scripted_service
from tests.workers.waiting import until
from tideq.client.heartbeat_thread import Heartbeat
from tideq.queue_core.background import background_task
from tideq.workers.runtime import health as health_module
from tideq.workers.runtime.consumer import Consumer
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.heartbeat import heartbeat_thread
from tideq.workers.runtime.poller import RegistrationRefused
from tideq.workers.runtime.service_api import ServiceApi, ServiceReply
from tideq.workers.runtime.worker_process import WorkerProcess, WorkerSettings

BEAT_MS = 200


class Script:
    """An obliging service with some work, which can be told to be otherwise."""

    def __init__(self, *work: str) -> None:
        self.work = [_given(name) for name in work]
        self.cancel: list[str] = []
        self.special: dict[str, Callable[[str, Json], Any]] = {}
        """By the end of the path."""
        self.registered_count = 0

    async def __call__(self, path: str, body: Json) -> Reply | None:
        for end, act in self.special.items():
            if path.endswith(end) and (reply := await act(path, body)) is not None:
                return reply
        if path.endswith("/register"):
            self.registered_count += 1
            worker_id = f"w{self.registered_count}"
            return Reply(201, {"worker_id": worker_id, "heartbeat_interval_ms": BEAT_MS})
        if path.endswith("/poll") and self.work:
            given, self.work = self.work, []
            return Reply(200, {"tasks": given, "cancel": self.cancel, "should_drain": False})
        reply = await obliging(path, body)
        reply.body["cancel"] = self.cancel
        return reply


def _given(name: str) -> Json:
    fields = {"task_id": f"t{name}", "lease": name, "attempt": 1, "timeout_seconds": 60.0}
    return {"task_type": "wait", "parameters": {}, "traceparent": None, **fields}


class Bench:
    """A worker with one handler, which waits until it is told to end."""

    def __init__(self, service: ScriptedService, script: Script, drain_seconds: float = 30.0, url: str = "") -> None:
        self.service, self.script = service, script
        service.script = script
        self.may_end = asyncio.Event()
        self.contexts: dict[str, TaskContext] = {}
        handlers = Handlers()
        handlers.add(Handler("wait", self._wait))
        settings = WorkerSettings(url=url or service.url, concurrency=5, drain_seconds=drain_seconds)
        self.worker = WorkerProcess(settings, handlers)

    async def _wait(self, ctx: TaskContext) -> str:
        self.contexts[ctx.task_id] = ctx
        await self.may_end.wait()
        return "done"

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncGenerator[asyncio.Task[None]]:
        async with background_task(self.worker.run()) as job:
            yield job
            assert not job.done() or job.exception() is None


@pytest.fixture
async def service() -> AsyncIterator[ScriptedService]:
    async with scripted_service() as service:
        yield service


def refusing(worker_id: str) -> Callable[[str, Json], Any]:
    async def act(path: str, _body: Json) -> Reply | None:
        return problem(404, "unknown-worker") if f"/{worker_id}/" in path else None

    return act


async def test_what_runs_under_a_forgotten_id_is_asked_about_and_reported_under_it(service: ScriptedService) -> None:
    bench = Bench(service, Script("kept", "lost"))

    async def start(_path: str, body: Json) -> Reply | None:
        return problem(409, "stale-lease") if body["lease"] == "lost" else None

    async with bench.working():
        await until(lambda: len(bench.contexts) == 2)
        unknown = refusing("w1")
        bench.script.special = {"/heartbeat": unknown, "/poll": unknown, "/sync": unknown, "/start": start}
        await until(lambda: bench.contexts["tlost"].is_cancelled)
        await until(lambda: bench.script.registered_count == 2)
        bench.may_end.set()
        await until(lambda: any(path.endswith("/w1/result") for path, _ in service.heard))
        await until(lambda: any(path.endswith("/w2/poll") for path, _ in service.heard))
        bench.worker.stop()

    told = [(path.split("/")[-2], body["lease"]) for path, body in service.heard if path.endswith("/result")]
    assert ("w1", "kept") in told
    assert {worker_id for worker_id, _ in told} == {"w1"}
    assert not bench.contexts["tkept"].is_cancelled


async def test_what_still_runs_under_a_forgotten_id_is_handed_back_under_it(service: ScriptedService) -> None:
    bench = Bench(service, Script("a"))

    async with bench.working() as job:
        await until(lambda: bench.contexts)
        bench.script.special = {"/heartbeat": refusing("w1"), "/poll": refusing("w1")}
        await until(lambda: bench.script.registered_count == 2)
        bench.worker.stop()
        bench.worker.stop()
        async with asyncio.timeout(60):
            await job

    released = [(path, row["lease"]) for path, body in service.heard for row in body.get("releases", ())]
    assert released == [("/internal/workers/w1/sync", "a")]
    assert service.heard[-1][0].endswith("/w2")


async def test_what_is_handed_back_while_the_service_is_away_arrives_once_it_is_back(service: ScriptedService) -> None:
    bench = Bench(service, script := Script("a", "b"), drain_seconds=0)
    service_is_back, tries, taken = asyncio.Event(), 0, list[str]()

    async def sync(path: str, body: Json) -> Reply:
        nonlocal tries
        tries += 1
        if not service_is_back.is_set():
            raise ConnectionResetError
        taken.extend(row["lease"] for row in body["releases"])
        return await obliging(path, body)

    async with bench.working() as working:
        await until(lambda: len(bench.contexts) == 2)
        script.special["/sync"] = sync
        bench.worker.stop()
        await until(lambda: tries >= 3 or working.done())
        service_is_back.set()
        await until(working.done)

    assert sorted(taken) == ["a", "b"]


async def test_a_poll_of_a_forgotten_worker_is_broken_off(service: ScriptedService) -> None:
    bench = Bench(service, Script())

    async with bench.working():
        await until(lambda: service.bodies("poll"))
        bench.script.special = {"/heartbeat": refusing("w1")}
        await until(lambda: any(path.endswith("/w2/poll") for path, _ in service.heard), 5)
        bench.worker.stop()


async def test_a_cancel_that_is_not_about_this_attempt_stops_nothing_and_is_asked_about_once(
    service: ScriptedService,
) -> None:
    bench = Bench(service, Script("a"))
    bench.script.cancel = ["ta"]

    async with bench.working():
        await until(lambda: len(service.bodies("heartbeat")) >= 4)
        asked = [row["lease"] for row in service.rows("starts")]
        is_cancelled = bench.contexts["ta"].is_cancelled
        bench.may_end.set()
        bench.worker.stop()

    assert asked == ["a", "a"]
    assert not is_cancelled


async def test_a_cancel_that_is_about_this_attempt_stops_it(service: ScriptedService) -> None:
    bench = Bench(service, Script("a"))

    async def refuse_starts(_path: str, body: Json) -> Reply | None:
        stale = {"type": f"{PROBLEMS}stale-lease", "detail": ""}
        if body.get("starts"):
            return Reply(200, {"outcomes": [{"task_id": "ta", "ok": False, "problem": stale}]})
        return None

    async with bench.working():
        await until(lambda: bench.contexts)
        bench.script.special = {"/sync": refuse_starts}
        bench.script.cancel = ["ta"]
        await until(lambda: bench.contexts["ta"].is_cancelled)
        bench.worker.stop()


async def test_a_service_that_does_not_wait_is_not_asked_without_end(service: ScriptedService) -> None:
    bench = Bench(service, Script())

    async def at_once(_path: str, _body: Json) -> Reply:
        return Reply(200, {"tasks": [], "cancel": ["gone"], "should_drain": False})

    bench.script.special = {"/poll": at_once}
    async with bench.working():
        began = time.monotonic()
        await until(lambda: len(service.bodies("poll")) >= 2)
        await asyncio.sleep(1.5)
        count, seconds = len(service.bodies("poll")), time.monotonic() - began
        bench.worker.stop()

    assert count <= 8 + seconds / 0.4, "soon no more than two a second"


@pytest.mark.parametrize("reply", [Reply(200, b"<html>"), Reply(200, b"[]"), problem(409, "conflict"), None])
async def test_a_poll_answered_wrongly_does_not_end_claiming(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, reply: Reply | None
) -> None:
    monkeypatch.setattr("tideq.workers.runtime.poller.REFUSED_SECONDS", 0.1)
    bench, left = Bench(service, Script("a")), 2

    async def wrong(_path: str, _body: Json) -> Reply | None:
        nonlocal left
        left -= 1
        return None if left < 0 else (reply or Reply(500, b""))

    bench.script.special = {"/poll": wrong}
    async with bench.working():
        await until(lambda: bench.contexts)
        bench.may_end.set()
        bench.worker.stop()

    # The same poll again: its tasks would be given again.
    ids = [body["poll_id"] for body in service.bodies("poll")]
    assert ids[0] == ids[1] == ids[2]


async def test_a_second_stop_hands_back_what_was_claimed_and_not_begun(service: ScriptedService) -> None:
    bench, asked = Bench(service, Script("a", "b")), asyncio.Event()

    async def hold_starts(_path: str, body: Json) -> Reply | None:
        """Heard, and not answered the first time."""
        if body.get("starts") and not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return None

    bench.script.special = {"/sync": hold_starts}
    async with bench.working() as job:
        await asked.wait()
        claimed, begun = bench.worker.held_count, bench.worker.running_count
        bench.worker.stop()
        bench.worker.stop()
        async with asyncio.timeout(60):
            await job

    assert (claimed, begun) == (2, 0)
    assert bench.contexts == {}
    assert sorted({row["lease"] for row in service.rows("releases")}) == ["a", "b"]
    assert service.heard[-1][0].endswith("/w1")


async def test_a_paused_worker_breaks_its_poll_off_and_asks_again_when_resumed(service: ScriptedService) -> None:
    bench, hung_up = Bench(service, Script()), asyncio.Event()

    async def poll(_path: str, _body: Json) -> Reply | None:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            hung_up.set()
            raise
        return None

    bench.script.special = {"/poll": poll}
    async with bench.working():
        await until(lambda: service.bodies("poll"))
        bench.worker.pause()
        await asyncio.sleep(0.3)
        paused_count = len(service.bodies("poll"))
        bench.worker.resume()
        await until(lambda: len(service.bodies("poll")) == 2)
        bench.worker.stop()

    assert paused_count == 1


async def test_a_worker_that_was_told_to_stop_before_it_runs_asks_for_nothing(service: ScriptedService) -> None:
    bench = Bench(service, Script("a"))
    bench.worker.stop()

    async with asyncio.timeout(20):
        await bench.worker.run()

    assert service.heard == []


async def test_a_worker_the_service_never_takes_ends_and_says_why(service: ScriptedService) -> None:
    bench = Bench(service, Script())

    async def refuse(_path: str, _body: Json) -> Reply:
        return problem(422, "invalid-request")

    bench.script.special = {"/register": refuse}
    with pytest.raises(RegistrationRefused, match="as the test says"):
        await bench.worker.run()


async def test_other_threads_may_look_while_runs_come_and_go() -> None:
    errors, is_over = list[BaseException](), threading.Event()
    handler = Handler("noop", lambda: None)
    async with ServiceApi("http://127.0.0.1:1") as protocol:
        crew = Consumer([handler], 5, protocol, {})

        def look() -> None:
            while not is_over.is_set():
                try:
                    assert crew.stuck_count == 0
                except RuntimeError as error:
                    errors.append(error)
                    return

        watching = threading.Thread(target=look)
        watching.start()
        await asyncio.to_thread(_come_and_go, crew)
        is_over.set()
        watching.join()

    assert errors == []


def _come_and_go(crew: Consumer) -> None:
    context = TaskContext("t", "noop", 1, "l", 60.0, Silence())

    class Standing:
        def __init__(self) -> None:
            self.context = context

    until_at = time.monotonic() + 0.5
    runs: Any = crew.attempts
    while time.monotonic() < until_at:
        for number in range(200):
            runs[str(number)] = Standing()
        runs.clear()


class Silence:
    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None: ...
    def extend(self, task_id: str, lease: str, seconds: float) -> None: ...


async def test_a_worker_says_that_it_has_too_little_memory_and_when_it_has_enough_again(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = 89.9
    monkeypatch.setattr(health_module, "_resident_bytes", lambda: used)
    monkeypatch.setattr(health_module, "_memory_limit_bytes", lambda: 100)
    bench = Bench(service, Script())

    def said() -> list[str]:
        return [body["status"] for body in service.bodies("heartbeat")]

    async with bench.working():
        await until(lambda: "active" in said())
        well = bench.worker.health()
        used = 90.1
        await until(lambda: said()[-1] == "unhealthy")
        ill = bench.worker.health()
        used = 50.0
        await until(lambda: said()[-1] == "active")

    assert (well.is_healthy, ill.is_healthy) == (True, False)
    assert ill.checks["memory_usage_percent"].limit == 90


async def test_heartbeats_that_failed_stop_no_new_work_once_one_arrives(service: ScriptedService) -> None:
    script = Script()
    is_away = True

    async def beating(_path: str, _body: Json) -> Reply | None:
        return Reply(503) if is_away else None

    script.special["/heartbeat"] = beating
    bench = Bench(service, script)
    async with bench.working():
        await until(lambda: not bench.worker.health().is_healthy)
        is_away = False
        await until(lambda: bench.worker.health().is_healthy)

    assert {body["status"] for body in service.bodies("heartbeat")} <= {"active", "draining"}


async def test_a_status_that_changes_is_told_before_the_next_round(service: ScriptedService) -> None:
    statuses, said = {"w1": "active"}, list[str]()

    def beats() -> list[Heartbeat]:
        said.append(statuses["w1"])
        return [Heartbeat("w1", 0, statuses["w1"], {})]

    answers = list[ServiceReply]()
    pulse = heartbeat_thread(
        service.url, None, beats, lambda: 600.0, lambda _, answer: answers.append(answer), lambda _: None
    )
    pulse.start()
    try:
        pulse.send_on_change(statuses)
        for number, status in enumerate(("unhealthy", "active", "draining"), start=1):
            statuses["w1"] = status
            pulse.send_on_change(statuses)
            await until(lambda number=number: len(answers) == number)
            pulse.send_on_change(statuses)
    finally:
        pulse.end()

    assert said == ["unhealthy", "active", "draining"]


async def test_the_pulse_takes_the_rhythm_it_is_told_and_nothing_stops_it(service: ScriptedService) -> None:
    interval, asked = 30.0, 0

    def beats() -> list[Heartbeat]:
        nonlocal asked
        asked += 1
        if asked % 2:
            raise RuntimeError("dictionary changed size during iteration")
        return [Heartbeat("w1", 0, "active", {})]

    answers = list[ServiceReply]()
    pulse = heartbeat_thread(
        service.url, None, beats, lambda: interval, lambda _, answer: answers.append(answer), lambda _: None
    )
    pulse.start()
    try:
        await asyncio.sleep(0.1)
        interval = 0.1
        await until(lambda: len(answers) >= 3)
    finally:
        pulse.end()

    assert asked >= 5
    assert pulse.failure_count <= 1


async def test_a_crew_whose_heartbeat_is_refused_does_not_silence_the_others(service: ScriptedService) -> None:
    beaten = list[str]()

    def beats() -> list[Heartbeat]:
        # The first one cannot even be written; the second is heard of all the same.
        return [Heartbeat("w1", 0, "active", {"load": object()}), Heartbeat("w2", 0, "active", {})]

    pulse = heartbeat_thread(
        service.url, None, beats, lambda: 0.05, lambda name, _: beaten.append(name), lambda _: None
    )
    pulse.start()
    try:
        await until(lambda: len(beaten) >= 2)
    finally:
        pulse.end()

    assert set(beaten) == {"w2"}
    assert pulse.failure_count >= 2


async def test_a_crew_whose_heartbeat_is_not_answered_does_not_delay_the_others(service: ScriptedService) -> None:
    beaten, never = list[str](), asyncio.Event()

    async def hang(path: str, body: Json) -> Reply | None:
        if "/w1/" in path:
            await never.wait()
        return await obliging(path, body)

    service.script = hang
    beats = [Heartbeat("w1", 0, "active", {}), Heartbeat("w2", 0, "active", {})]
    pulse = heartbeat_thread(
        service.url, None, lambda: beats, lambda: 0.05, lambda name, _: beaten.append(name), lambda _: None
    )
    pulse.start()
    try:
        await until(lambda: len(beaten) >= 3, 5)
    finally:
        pulse.end()

    assert set(beaten) == {"w2"}
    assert sum("/w1/" in path for path, _ in service.heard) == 1


async def test_heartbeats_go_on_where_the_process_gets_no_more_threads(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    beaten, start = list[str](), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "tideq-beat":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    beats = [Heartbeat("w1", 0, "active", {}), Heartbeat("w2", 0, "active", {})]
    pulse = heartbeat_thread(
        service.url, None, lambda: beats, lambda: 0.05, lambda name, _: beaten.append(name), lambda _: None
    )
    pulse.start()
    try:
        await until(lambda: min(map(beaten.count, ("w1", "w2"))) >= 2, 5)
        assert pulse.is_alive()
    finally:
        pulse.end()


async def test_a_round_of_heartbeats_that_fails_is_counted_and_the_next_one_comes(service: ScriptedService) -> None:
    is_broken, answers = True, list[ServiceReply]()

    def interval_seconds() -> float:
        if is_broken:
            raise ZeroDivisionError("no rhythm")
        return 0.05

    beats = [Heartbeat("w1", 0, "active", {})]
    pulse = heartbeat_thread(
        service.url, None, lambda: beats, interval_seconds, lambda _, answer: answers.append(answer), lambda _: None
    )
    pulse.start()
    try:
        await until(lambda: pulse.failure_count >= 1)
        is_broken = False
        await until(lambda: bool(answers) and pulse.failure_count == 0)
    finally:
        pulse.end()


async def test_behind_a_proxy_polls_reports_and_heartbeats_go_through_it(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", service.url)
    monkeypatch.setenv("NO_PROXY", "")
    url = "http://tideq.invalid/base"
    bench = Bench(service, Script("one"), url=url)
    bench.may_end.set()

    async with bench.working():
        await until(lambda: bool(service.rows("results")) and bool(service.bodies("heartbeat")))

    assert all(path.startswith(f"{url}/internal/workers/") for path, _ in service.heard)


async def test_a_service_that_needs_no_proxy_is_asked_directly(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    bench = Bench(service, Script("one"))
    bench.may_end.set()

    async with bench.working():
        await until(lambda: bool(service.rows("results")) and bool(service.bodies("heartbeat")))
