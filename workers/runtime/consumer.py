"""A crew: handlers that share slots, registered as one worker. Claims for them, runs them, reports for them.

A handler with a concurrency or rate of its own has a crew of its own: the service then never hands out more of its type
than it may run.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec
import structlog

from tideq.queue_core.background import background_task, cancel_and_wait
from tideq.workers.runtime.circuit_log import CircuitLog
from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.executor import Attempt, Executor
from tideq.workers.runtime.failures import Fail, error_document
from tideq.workers.runtime.handler_spans import HandlerTracer
from tideq.workers.runtime.handlers import Handler
from tideq.workers.runtime.poller import Poller
from tideq.workers.runtime.rate import Rate
from tideq.workers.runtime.report_buffer import HeldTask, ReportBuffer, Result
from tideq.workers.runtime.reporter import Reporter
from tideq.workers.runtime.service_api import AssignedTask, ServiceApi, ServiceRefusal, ServiceReply, Unreachable
from tideq.workers.runtime.slots import Slots

LOOK_SECONDS = 0.25
LATE_SECONDS = 5.0
"""A thread that runs on for so long after its deadline counts as stuck."""
FAREWELL_SECONDS = 2.0

log = structlog.get_logger("tideq.worker")


class Consumer:
    def __init__(
        self,
        handlers: Sequence[Handler],
        capacity: int,
        protocol: ServiceApi,
        description: dict[str, Any],
        modules: Sequence[str] = (),
        rate: Rate | None = None,
        *,
        shares_loop: bool = False,
    ) -> None:
        """`shares_loop` where there are several crews, and handlers that run on it."""
        self.runs: dict[str, Attempt] = {}
        """By lease."""
        self._handlers = {handler.task_type: handler for handler in handlers}
        self._protocol = protocol
        self._slots = Slots(capacity)
        self._tracer = HandlerTracer()
        self._circuits = CircuitLog()
        self._reporter = Reporter(
            protocol, self._handle_side_effects, self._lose, self.forget, self._tracer.end_settling
        )
        self._execution = Executor(capacity, modules, self._done, self._tracer)
        about = {**description, "task_types": sorted(self._handlers), "capacity": capacity}
        self._claimer = Poller(
            protocol,
            about,
            self._slots,
            rate,
            self._reporter,
            self._open_mailbox,
            self._take,
            self._check_all_leases,
            lambda: not (shares_loop or self._execution.on_loop_count or self._jobs),
        )
        self._reporter.claims = self._claimer
        self._mailbox: ReportBuffer | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._drain_asked = asyncio.Event()
        self._is_leaving = self._has_left = False

    @property
    def worker_id(self) -> str:
        return self._claimer.worker_id

    @property
    def heartbeat_seconds(self) -> float:
        return self._claimer.heartbeat_seconds

    @property
    def is_draining(self) -> bool:
        return self._drain_asked.is_set()

    @property
    def held_count(self) -> int:
        """Claimed, also where they have not begun."""
        return self._slots.capacity - self._slots.free

    @property
    def unsent_count(self) -> int:
        return self._reporter.unsent_count

    @property
    def stuck_count(self) -> int:
        """Asked from other threads, which must not walk through what the loop changes."""
        return sum(run.context.overdue_seconds > LATE_SECONDS for run in list(self.runs.values()))

    def pause(self) -> None:
        """Claim nothing more until `resume`; what runs goes on."""
        self._claimer.pause()

    def resume(self) -> None:
        if not self.is_draining:
            self._claimer.resume()

    def drain(self) -> None:
        """Claim nothing more and come to an end."""
        self._claimer.pause()
        self._drain_asked.set()

    async def run(self, drain_seconds: float) -> None:
        """Until drained: then what runs has finished, as far as the time allowed, and the rest is handed back."""
        work = (self._live(drain_seconds), self._reporter.run(), self._watch_deadlines())
        jobs = [asyncio.create_task(job) for job in work]
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            next(job for job in jobs if job.done()).result()
        finally:
            await cancel_and_wait(*jobs)

    async def abandon(self) -> None:
        """Where `run` was broken off: hand everything back and leave, without waiting for long."""
        if self._has_left:
            return
        self._hand_back()
        async with background_task(self._reporter.run()):
            try:
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await self._reporter.silent()
                    await self._leave()
            except TimeoutError:
                log.error("reports undelivered: held tasks come back by themselves", unsent=self.unsent_count)

    def end(self) -> None:
        self._execution.end()
        self._tracer.end()

    def handle_reply(self, worker_id: str, answer: ServiceReply) -> None:
        """What an answer to a poll or a heartbeat says besides."""
        self._circuits.note(worker_id, answer.held_back)
        self._handle_side_effects(worker_id, answer)

    def _handle_side_effects(self, worker_id: str, answer: ServiceReply) -> None:
        """What every answer may say."""
        if answer.cancel:
            self._check_lease(worker_id, Counter(answer.cancel))
        if answer.should_drain and not self.is_draining:
            log.info("asked to drain", worker_id=worker_id)
            self.drain()

    def forget(self, worker_id: str) -> None:
        """The service does not know this worker id any more."""
        if worker_id == self.worker_id:
            self._circuits = CircuitLog()
            self._claimer.forget()
            self._check_all_leases(worker_id)

    async def _live(self, drain_seconds: float) -> None:
        async with (
            background_task(self._claimer.run()) as claiming,
            background_task(self._drain_asked.wait()) as draining,
        ):
            await asyncio.wait((claiming, draining), return_when=asyncio.FIRST_COMPLETED)
            if claiming.done():
                claiming.result()
        # A poll that waited has been broken off: the service notices, and claims nothing for it.
        log.info("draining", worker_id=self.worker_id, running=len(self.runs))
        await self._slots.all_free(drain_seconds)
        self._hand_back()
        await self._reporter.silent()
        await self._leave()

    def _open_mailbox(self, worker_id: str) -> None:
        self._mailbox = self._reporter.mailbox(worker_id)
        self._tracer.queue_name = self._claimer.queue_name

    def _take(self, worker_id: str, answer: ServiceReply, asked_at: float) -> None:
        self.handle_reply(worker_id, answer)
        if not answer.tasks or self._mailbox is None:
            return
        if self._claimer.is_paused or worker_id != self._mailbox.worker_id:
            # Asked for before, or under a former id: nothing new is begun any more.
            mailbox = self._reporter.mailbox(worker_id)
            mailbox.release([HeldTask(task.task_id, task.lease) for task in answer.tasks])
            return
        self._slots.take(len(answer.tasks))
        seconds, doubtful = time.monotonic() - asked_at, list[AssignedTask]()
        for task in answer.tasks:
            if task.is_started and seconds < min(self.heartbeat_seconds, task.timeout_seconds):
                self._begin(task, self._mailbox)
            else:
                doubtful.append(task)
        if doubtful:
            self._beside(self._start(doubtful, self._mailbox))

    async def _start(self, tasks: Sequence[AssignedTask], mailbox: ReportBuffer) -> None:
        """Only what the service says may begin does: an assignment may have lapsed, a deadline passed, on the way."""
        outcomes = await mailbox.start([HeldTask(task.task_id, task.lease) for task in tasks])
        for task, outcome in zip(tasks, outcomes, strict=True):
            if not outcome.ok:
                log.info("task was not ours to start", task_id=task.task_id, problem=outcome.code)
                self._slots.give_back()
            elif self._is_leaving:
                mailbox.release([HeldTask(task.task_id, task.lease)])
            else:
                self._begin(task, mailbox)

    def _begin(self, task: AssignedTask, mailbox: ReportBuffer) -> None:
        context = TaskContext(
            task.task_id, task.task_type, task.attempt, task.lease, task.timeout_seconds, mailbox, task.traceparent
        )
        handler = self._handlers.get(task.task_type)
        if handler is None:
            error = Fail(f"this worker has no handler for {task.task_type}", code="NO_HANDLER")
            document = msgspec.Raw(error_document(error))
            mailbox.finish([Result(task_id=task.task_id, lease=task.lease, status="failed", error=document)])
            self._slots.give_back()
            return
        run = Attempt(task, handler, context, mailbox)
        self.runs[task.lease] = run
        self._execution.begin(run)

    def _done(self, ended: Sequence[tuple[Attempt, Result]]) -> None:
        """A run that was handed back is not reported: nobody waits for it."""
        for run, result in ended:
            if self.runs.pop(run.task.lease, None) is None:
                self._tracer.drop(run.task.lease)
                continue
            self._tracer.begin_settling(run.task, run.mailbox.worker_id)
            run.mailbox.finish([result])
            self._slots.give_back()

    def _lose(self, lease: str) -> None:
        if run := self.runs.get(lease):
            run.stop()

    def _check_lease(self, worker_id: str, cancelled: Counter[str]) -> None:
        """A task is named by its id alone, once for each attempt of it that was called off lately.

        The attempt that runs here may be a later one: each time one more is named, the service is asked about it.
        """
        doubted = list[Attempt]()
        for run in self.runs.values():
            count = cancelled[run.task.task_id] if run.mailbox.worker_id == worker_id else run.cancel_count
            if count > run.cancel_count and not run.context.is_cancelled:
                doubted.append(run)
            run.cancel_count = count
        self._check_one_lease(doubted)

    def _check_all_leases(self, worker_id: str) -> None:
        """What runs under an id that is known no more may be another's by now, or still this worker's."""
        self._check_one_lease([run for run in self.runs.values() if run.mailbox.worker_id == worker_id])

    def _check_one_lease(self, runs: Sequence[Attempt]) -> None:
        for mailbox in {run.mailbox for run in runs}:
            self._beside(self._stop_if_lost([run for run in runs if run.mailbox is mailbox], mailbox))

    async def _stop_if_lost(self, runs: Sequence[Attempt], mailbox: ReportBuffer) -> None:
        """Starting again what has been started changes nothing, and is refused to whoever lost it."""
        outcomes = await mailbox.start([HeldTask(run.task.task_id, run.task.lease) for run in runs])
        for run, outcome in zip(runs, outcomes, strict=True):
            if not outcome.ok:
                log.info("task is no longer ours", task_id=run.task.task_id, problem=outcome.code)
                run.stop()

    async def _watch_deadlines(self) -> None:
        """The service takes a task away at its deadline; its handler is told here, whatever the service can say."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for run in list(self.runs.values()):
                if run.context.overdue_seconds > 0 and not run.context.is_cancelled:
                    log.warning("execution deadline passed", task_id=run.task.task_id)
                    run.stop()

    def _hand_back(self) -> None:
        self._is_leaving = True
        self._claimer.pause()
        runs = list(self.runs.values())
        self.runs.clear()
        for run in runs:
            run.stop()
            run.mailbox.release([HeldTask(run.task.task_id, run.task.lease)])

    async def _leave(self) -> None:
        self._has_left = True
        if self.worker_id:
            try:
                await self._protocol.leave(self.worker_id)
            except (Unreachable, ServiceRefusal) as error:
                log.warning("could not say goodbye: held tasks come back by themselves", error=str(error))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """The loop itself does not keep what it runs."""
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        job.add_done_callback(_report_crash)


def _report_crash(job: asyncio.Task[None]) -> None:
    if not job.cancelled() and (error := job.exception()):
        log.error("claimed tasks were not started and come back by themselves", exc_info=error)
