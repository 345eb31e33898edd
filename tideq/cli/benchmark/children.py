"""The processes of a run: some submit tasks, others are workers whose handler does nothing.

Each takes orders from a pipe and reports through it; it ends when the pipe ends, also where the parent was killed.
Instants are seconds of the monotonic clock, which the processes of one machine share.
"""

import asyncio
import contextlib
import time
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any, Literal

import msgspec
import structlog

from tideq.client.http.exchange import ExchangeFailed, HttpRequest, Response
from tideq.client.http.over_aiohttp import AsyncHttp
from tideq.queue_core.background import background_task, cancel_and_wait, loop_factory
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.service_api import http_for
from tideq.workers.runtime.worker_process import WorkerProcess, WorkerSettings

PROGRESS_SECONDS = 0.1
ANSWER_SECONDS = 60.0
WAIT_SECONDS = 30
ONE, MANY = "/api/v1/tasks", "/api/v1/tasks/batch"
TIMER_SECONDS = 0.002
"""Timers fire up to a millisecond late; that delay is this process's and is not counted as the service's."""
CONCURRENCY = 500
"""The most tasks one claim may take: handlers take no time, so only held tasks overlap with the claims."""
DRAIN_SECONDS = 5.0
LOOK_SECONDS = 0.005
MAX_REST_SECONDS = 20.0


class BenchTarget(msgspec.Struct, frozen=True):
    url: str
    api_key: str
    task_type: str
    """Also the required capability of its tasks, so that workers that serve any type cannot claim them."""


class Submit(msgspec.Struct, frozen=True):
    """Submit `count` tasks as fast as possible."""

    count: int
    batch: int
    connections: int
    payload_bytes: int


class Pace(msgspec.Struct, frozen=True):
    """Submit tasks one by one at an even rate, and wait for the result of some of them."""

    count: int
    per_second: float
    payload_bytes: int
    waits_every: int = 5


class BenchSubmitted(msgspec.Struct, frozen=True):
    count: int
    began: float
    ended: float
    cpu_seconds: float
    answer_ms: list[float]
    """The duration of each call."""
    round_trip_ms: list[float]
    """From submission to reading the result, of the tasks that were waited for."""


class Worked(msgspec.Struct, frozen=True):
    count: int
    began: float
    cpu_seconds: float
    moments: Counter[int]
    """Completed tasks by millisecond."""
    pickup_ms: list[float]
    """From submission to the handler's first line, of tasks whose parameters have the submission time."""


class Failed(msgspec.Struct, frozen=True):
    """`status` is 0 where there was no answer."""

    status: int
    message: str


Order = Submit | Pace | Literal["work", "rest"]
Report = Literal["ready"] | int | BenchSubmitted | Worked | Failed
"""A number is the progress of an order."""


class CallFailed(Exception):
    """The service answered with an error; a measurement that goes on after it would be wrong."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.failure = Failed(response.status, response.body.decode(errors="replace"))


class Parameters(msgspec.Struct):
    at: float = 0.0
    """The time of submission in milliseconds; 0 where pickup is not measured."""
    pad: str = ""


class Accepted(msgspec.Struct):
    task_id: str


def run_child(role: Literal["load", "work"], target: BenchTarget, parent: Connection) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError), asyncio.Runner(loop_factory=loop_factory()) as run:
        run.run(_load(target, parent) if role == "load" else _work(target, parent))


async def _next_order(parent: Connection) -> Order | None:
    """None at the end of the pipe."""
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(parent.fileno(), ready.set)
    try:
        await ready.wait()
        return parent.recv()
    except (EOFError, ConnectionResetError):
        return None
    finally:
        loop.remove_reader(parent.fileno())


async def _load(target: BenchTarget, parent: Connection) -> None:
    """An error ends the order and not the process: a sweep may go on with smaller values."""
    parent.send("ready")
    while isinstance(order := await _next_order(parent), Submit | Pace):
        report: Report
        try:
            report = await Load(target, order, parent).run()
        except* (CallFailed, ExchangeFailed, OSError, TimeoutError) as failures:
            report = _failure(failures.exceptions[0])
        parent.send(report)


def _failure(error: Exception) -> Failed:
    return error.failure if isinstance(error, CallFailed) else Failed(0, f"{type(error).__name__}: {error}")


class Load:
    """One order: prepared bytes on connections of its own, so that the client uses little CPU."""

    def __init__(self, target: BenchTarget, order: Submit | Pace, parent: Connection) -> None:
        self._task_type, self._order, self._parent = target.task_type, order, parent
        count = order.connections if isinstance(order, Submit) else 1
        self._connections = [http_for(target.url, target.api_key) for _ in range(count)]
        self._taken = self._done = 0
        self._shown_at = 0.0
        self._answer_ms: list[float] = []
        self._round_trip_ms: list[float] = []

    async def run(self) -> BenchSubmitted:
        began, cpu, order = time.monotonic(), time.process_time(), self._order
        try:
            ended = await (self._pace(order, began) if isinstance(order, Pace) else self._submit_all(order))
        finally:
            for connection in self._connections:
                await connection.aclose()
        spent = time.process_time() - cpu
        return BenchSubmitted(order.count, began, ended, spent, self._answer_ms, self._round_trip_ms)

    async def _submit_all(self, order: Submit) -> float:
        task = self._task()
        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(self._submit(connection, order, task))
        return time.monotonic()

    async def _submit(self, connection: AsyncHttp, order: Submit, task: bytes) -> None:
        while (size := min(order.batch, order.count - self._taken)) > 0:
            self._taken += size
            body = task if order.batch == 1 else b'{"tasks":[%b]}' % b",".join([task] * size)
            began = time.monotonic()
            await _call(connection, "POST", ONE if order.batch == 1 else MANY, body)
            self._answer_ms.append((time.monotonic() - began) * 1000)
            self._done += size
            self._progress(self._done)

    async def _pace(self, order: Pace, began: float) -> float:
        """Waits for no earlier answers, so that a slow service gets the same load."""
        async with asyncio.TaskGroup() as group:
            for number in range(order.count):
                due = began + number / order.per_second
                await asyncio.sleep(max(due - time.monotonic(), 0))
                group.create_task(self._submit_at(due, is_waited_for=number % order.waits_every == 0))
                self._progress(number)
            # Before the answers that the group still waits for.
            return time.monotonic()

    async def _submit_at(self, due: float, *, is_waited_for: bool) -> None:
        """A submission that starts late is measured from the time it was due."""
        (connection,), now = self._connections, time.monotonic()
        since = now if now - due < TIMER_SECONDS else due
        answer = await _call(connection, "POST", ONE, self._task(since * 1000))
        self._answer_ms.append((time.monotonic() - since) * 1000)
        if is_waited_for:
            task_id = msgspec.json.decode(answer.body, type=Accepted).task_id
            await _call(connection, "GET", f"{ONE}/{task_id}/wait?timeout_seconds={WAIT_SECONDS}")
            self._round_trip_ms.append((time.monotonic() - since) * 1000)

    def _task(self, at_ms: float = 0) -> bytes:
        """A task whose parameters have this many bytes as JSON, but not less than their own fields need."""
        own = len(msgspec.json.encode(Parameters(at_ms)))
        task: dict[str, Any] = {
            "task_type": self._task_type,
            "parameters": Parameters(at_ms, "x" * max(self._order.payload_bytes - own, 0)),
            "required_capabilities": [self._task_type],
        }
        return msgspec.json.encode(task)

    def _progress(self, count: int) -> None:
        """Raises where the parent is gone."""
        if time.monotonic() >= self._shown_at + PROGRESS_SECONDS:
            self._shown_at = time.monotonic()
            self._parent.send(count)


async def _call(connection: AsyncHttp, method: str, path: str, body: bytes = b"") -> Response:
    waits_seconds = ANSWER_SECONDS + (0 if body else WAIT_SECONDS)
    response = await connection.request(HttpRequest(method=method, path=path, body=body, waits_seconds=waits_seconds))
    if not 200 <= response.status < 300:
        raise CallFailed(response)
    return response


class NoOp:
    """The handler; counts since the last `begin`."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.count, self._moments, self._cpu, self._began = 0, Counter[int](), time.process_time(), time.monotonic()
        self._pickup_ms: list[float] = []

    async def handle(self, parameters: Parameters) -> None:
        now_ms = time.monotonic() * 1000
        self.count += 1
        self._moments[int(now_ms)] += 1
        if parameters.at:
            self._pickup_ms.append(now_ms - parameters.at)

    def result(self) -> Worked:
        return Worked(self.count, self._began, time.process_time() - self._cpu, self._moments, self._pickup_ms)


async def _work(target: BenchTarget, parent: Connection) -> None:
    """A worker as applications run it; it stops in order when the orders end."""
    no_op, handlers = NoOp(), Handlers()
    handlers.add(Handler(target.task_type, no_op.handle, takes="payload"))
    settings = WorkerSettings(
        url=target.url,
        api_key=target.api_key or None,
        concurrency=CONCURRENCY,
        capabilities=(target.task_type,),
        name="bench",
        drain_seconds=DRAIN_SECONDS,
    )
    worker = WorkerProcess(settings, handlers)
    running = asyncio.create_task(worker.run())
    following = asyncio.create_task(_follow_orders(worker, no_op, parent))
    await asyncio.wait((running, following), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await cancel_and_wait(following)
        running.result()
        return
    worker.stop()
    await running
    following.result()


async def _follow_orders(worker: WorkerProcess, no_op: NoOp, parent: Connection) -> None:
    while not worker.is_registered:  # noqa: ASYNC110 - the worker has no event for it
        await asyncio.sleep(LOOK_SECONDS)
    worker.pause()
    # Tasks claimed before the pause must be completed now: the first order would wait for them and not count them.
    await _wait_until_idle(worker)
    parent.send("ready")
    while await _next_order(parent) == "work":
        no_op.begin()
        worker.resume()
        async with background_task(_report_progress(no_op, parent)):
            if await _next_order(parent) is None:
                return
            worker.pause()
            await _wait_until_idle(worker)
        parent.send(no_op.result())


async def _report_progress(no_op: NoOp, parent: Connection) -> None:
    while True:
        parent.send(no_op.count)
        await asyncio.sleep(PROGRESS_SECONDS)


async def _wait_until_idle(worker: WorkerProcess) -> None:
    """Waits until all held tasks are completed and reported, at most MAX_REST_SECONDS: the service may be gone."""
    deadline = time.monotonic() + MAX_REST_SECONDS
    while (worker.held_count or worker.unsent_count) and time.monotonic() < deadline:  # noqa: ASYNC110 - counts have no events
        await asyncio.sleep(LOOK_SECONDS)
