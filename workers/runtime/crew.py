"""A crew: handlers that share slots, registered as one worker. Claims for them, runs them, reports for them.

A handler with a concurrency or rate of its own has a crew of its own: the service then never hands out more of its type
than it may run.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from tideq.queue_core.background import end, running
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.execution import Execution, Run
from tideq.workers.runtime.failures import Fail, error_document
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.protocol import Answer, GivenTask, Outcome, Protocol, Refused, Unreachable
from tideq.workers.runtime.rate import Rate
from tideq.workers.runtime.reporter import Held, Reporter, Result

POLL_SECONDS = 20.0
MAX_CLAIM = 500
FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 5.0
LATE_SECONDS = 5.0
"""A thread that runs on for so long after its deadline counts as stuck."""
UNKNOWN_WORKER = "unknown-worker"

log = structlog.get_logger("tideq.worker")


class Crew:
    def __init__(
        self,
        handlers: Sequence[Handler],
        capacity: int,
        protocol: Protocol,
        description: dict[str, Any],
        modules: Sequence[str] = (),
        rate: Rate | None = None,
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        self.capacity = capacity
        self.worker_id = ""
        self.heartbeat_seconds = 30.0
        self.is_draining = False
        self.runs: dict[str, Run] = {}
        """By lease."""
        self._handlers = {handler.task_type: handler for handler in handlers}
        self._protocol = protocol
        self._description = {**description, "task_types": list(self._handlers), "capacity": capacity}
        self._rate = rate
        self._on_drain = on_drain
        self._reporter = Reporter(protocol, self.hear, self._lose)
        self._execution = Execution(capacity, modules, self._done)
        self._slot_freed = asyncio.Event()
        self._may_claim, self._is_paused = asyncio.Event(), asyncio.Event()
        self._may_claim.set()
        self._claimed_count = 0
        self._claiming: asyncio.Task[None] | None = None

    @property
    def free_slots(self) -> int:
        return self.capacity - len(self.runs) - self._claimed_count

    @property
    def unsent_count(self) -> int:
        return self._reporter.unsent_count

    @property
    def stuck_count(self) -> int:
        return sum(run.context.overdue_seconds > LATE_SECONDS for run in self.runs.values())

    async def run(self) -> None:
        """For ever: what was claimed is reported also when nothing more is claimed."""
        self._claiming = asyncio.create_task(self._claim_unless_paused())
        async with running(self._watch_deadlines()):
            try:
                await self._reporter.run()
            finally:
                await end(self._claiming)

    async def drain(self, seconds: float) -> None:
        """Finish what runs, as far as the time allows; hand the rest back, and leave. `run` must still run."""
        self.is_draining = True
        if self._claiming is not None:
            # A poll that waits is broken off: the service notices, and claims nothing for it.
            await end(self._claiming)
        await self._wait_for_runs(seconds)
        left = [Held(run.task.task_id, run.task.lease) for run in self.runs.values()]
        for run in list(self.runs.values()):
            run.stop()
        self.runs.clear()
        if left:
            self._reporter.release(left)
        await self._reporter.silent()
        await self._leave()

    def end(self) -> None:
        self._execution.end()

    def hear(self, answer: Answer) -> None:
        """What every answer may say besides."""
        for task_id in answer.cancel:
            self._lose(task_id)
        if answer.should_drain and not self.is_draining:
            log.info("asked to drain", worker_id=self.worker_id)
            self.is_draining = True
            self._on_drain()

    def forget(self) -> None:
        """The service no longer knows this worker: it registers anew before it claims again."""
        self.worker_id = ""

    async def _claim_for_ever(self) -> None:
        delay = FIRST_DELAY_SECONDS
        poll_id = secrets.token_hex(8)
        while not self.is_draining:
            try:
                await self._register_if_needed()
                wanted = await self._wanted()
                answer = await self._protocol.poll(self.worker_id, wanted, POLL_SECONDS, poll_id)
                # A new id once an answer has arrived: the old one would be answered with the same tasks.
                poll_id, delay = secrets.token_hex(8), FIRST_DELAY_SECONDS
                self._take(answer)
            except Unreachable as error:
                log.warning("service unreachable", error=str(error))
                await asyncio.sleep(error.retry_after_seconds or delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, MAX_DELAY_SECONDS)
            except Refused as error:
                await self._bear(error)

    async def _bear(self, error: Refused) -> None:
        if error.code == UNKNOWN_WORKER:
            self.forget()
            return
        log.error("service refuses this worker", error=str(error))
        await asyncio.sleep(MAX_DELAY_SECONDS)

    async def _register_if_needed(self) -> None:
        if not self.worker_id:
            registration = await self._protocol.register(self._description)
            self.worker_id = self._reporter.worker_id = registration.worker_id
            self.heartbeat_seconds = registration.heartbeat_interval_ms / 1000
            log.info("registered", worker_id=self.worker_id, task_types=sorted(self._handlers))

    def pause(self) -> None:
        """Claim nothing more until `resume`; what runs goes on."""
        self._may_claim.clear()
        self._is_paused.set()

    def resume(self) -> None:
        self._is_paused.clear()
        self._may_claim.set()

    async def _claim_unless_paused(self) -> None:
        """A poll that waits is broken off by a pause: the service notices, and claims nothing for it."""
        while not self.is_draining:
            await self._may_claim.wait()
            async with running(self._claim_for_ever()) as claiming, running(_wait_for(self._is_paused)) as pausing:
                await asyncio.wait((claiming, pausing), return_when=asyncio.FIRST_COMPLETED)
                if claiming.done():
                    claiming.result()

    async def _wanted(self) -> int:
        """At least one slot and one token; then as many as both allow."""
        while self.free_slots <= 0:
            self._slot_freed.clear()
            await self._slot_freed.wait()
        if self._rate is None:
            return min(self.free_slots, MAX_CLAIM)
        await asyncio.sleep(self._rate.seconds_until_one())
        return min(self.free_slots, max(self._rate.available(), 1), MAX_CLAIM)

    def _take(self, answer: Answer) -> None:
        self.hear(answer)
        if answer.tasks:
            if self._rate is not None:
                self._rate.spend(len(answer.tasks))
            self._claimed_count += len(answer.tasks)
            asyncio.ensure_future(self._start(answer.tasks)).add_done_callback(_report_crash)

    async def _start(self, tasks: Sequence[GivenTask]) -> None:
        """Only what the service says may begin does: an assignment may have lapsed on its way here."""
        outcomes = await self._reporter.start(tasks)
        self._claimed_count -= len(tasks)
        for task, outcome in zip(tasks, outcomes, strict=True):
            if outcome.ok:
                self._begin(task)
            else:
                log.info("task was not ours to start", task_id=task.task_id, problem=_code(outcome))
        if self.free_slots > 0:
            self._slot_freed.set()

    def _begin(self, task: GivenTask) -> None:
        context = TaskContext(
            task.task_id, task.task_type, task.attempt, task.lease, task.timeout_seconds, self._reporter
        )
        handler = self._handlers.get(task.task_type)
        if handler is None:
            error = Fail(f"this worker has no handler for {task.task_type}", code="NO_HANDLER")
            document = msgspec.Raw(error_document(error))
            self._reporter.finish([Result(task_id=task.task_id, lease=task.lease, status="failed", error=document)])
            return
        run = Run(task, handler, context)
        self.runs[task.lease] = run
        self._execution.begin(run)

    def _done(self, ended: Sequence[tuple[Run, Result]]) -> None:
        """A run that was handed back or lost is not reported: nobody waits for it."""
        results = [result for run, result in ended if self.runs.pop(run.task.lease, None) is not None]
        self._reporter.finish(results)
        self._slot_freed.set()

    def _lose(self, task_id: str) -> None:
        for run in self.runs.values():
            if run.task.task_id == task_id:
                run.stop()

    async def _watch_deadlines(self) -> None:
        """The service takes a task away at its deadline; its handler is told here, whatever the service can say."""
        while True:
            await asyncio.sleep(0.25)
            for run in list(self.runs.values()):
                if run.context.overdue_seconds > 0 and not run.context.is_cancelled:
                    log.warning("execution deadline passed", task_id=run.task.task_id)
                    run.stop()

    async def _wait_for_runs(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while (self.runs or self._claimed_count) and asyncio.get_running_loop().time() < deadline:
            self._slot_freed.clear()
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._slot_freed.wait(), min(left, 0.5))
            except TimeoutError:
                continue

    async def _leave(self) -> None:
        if self.worker_id:
            try:
                await self._protocol.leave(self.worker_id)
            except (Unreachable, Refused) as error:
                log.warning("could not say goodbye: held tasks come back by themselves", error=str(error))


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


def _code(outcome: Outcome) -> str:
    return outcome.problem.code if outcome.problem else ""


def _report_crash(job: "asyncio.Future[None]") -> None:
    if not job.cancelled() and (error := job.exception()):
        log.error("claimed tasks were not started and come back by themselves", exc_info=error)
