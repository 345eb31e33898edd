"""A consumer: handlers that share slots, registered as one worker. Claims, runs and reports their tasks.

A handler with its own concurrency or rate has its own consumer: the service then never hands out more of its type than
it may run.
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

DEADLINE_CHECK_SECONDS = 0.25
LATE_SECONDS = 5.0
"""A thread still running so long after its deadline counts as stuck."""
DEREGISTER_SECONDS = 2.0

log = structlog.get_logger("tideq.worker")


class Consumer:
    def __init__(
        self,
        handlers: Sequence[Handler],
        capacity: int,
        api: ServiceApi,
        description: dict[str, Any],
        modules: Sequence[str] = (),
        rate: Rate | None = None,
        *,
        shares_loop: bool = False,
    ) -> None:
        """`shares_loop`: there are several consumers, and some handler runs on the loop."""
        self.attempts: dict[str, Attempt] = {}
        """By lease."""
        self._handlers = {handler.task_type: handler for handler in handlers}
        self._api = api
        self._slots = Slots(capacity)
        self._tracer = HandlerTracer()
        self._circuits = CircuitLog()
        self._reporter = Reporter(
            api, self._handle_side_effects, self._stop_attempt, self.on_unknown_worker, self._tracer.end_settling
        )
        self._executor = Executor(capacity, modules, self._done, self._tracer)
        worker_description = {**description, "task_types": sorted(self._handlers), "capacity": capacity}
        self._poller = Poller(
            api,
            worker_description,
            self._slots,
            rate,
            self._reporter,
            self._open_report_buffer,
            self._accept_tasks,
            self._check_all_leases,
            lambda: not (shares_loop or self._executor.on_loop_count or self._jobs),
        )
        self._reporter.claims = self._poller
        self._report_buffer: ReportBuffer | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._drain_requested = asyncio.Event()
        self._is_releasing = self._is_deregistered = False

    @property
    def worker_id(self) -> str:
        return self._poller.worker_id

    @property
    def heartbeat_seconds(self) -> float:
        return self._poller.heartbeat_seconds

    @property
    def is_draining(self) -> bool:
        return self._drain_requested.is_set()

    @property
    def held_count(self) -> int:
        """Claimed tasks, running or not."""
        return self._slots.capacity - self._slots.free

    @property
    def unsent_count(self) -> int:
        return self._reporter.unsent_count

    @property
    def stuck_count(self) -> int:
        """Safe from other threads: iterates over a copy."""
        return sum(attempt.context.overdue_seconds > LATE_SECONDS for attempt in list(self.attempts.values()))

    def pause(self) -> None:
        """Stops claiming until `resume`; running tasks go on."""
        self._poller.pause()

    def resume(self) -> None:
        if not self.is_draining:
            self._poller.resume()

    def drain(self) -> None:
        """Stops claiming; `run` then finishes."""
        self._poller.pause()
        self._drain_requested.set()

    async def run(self, drain_seconds: float) -> None:
        """Runs until drained. Tasks still running after `drain_seconds` are released."""
        work = (self._claim_until_drained(drain_seconds), self._reporter.run(), self._watch_deadlines())
        jobs = [asyncio.create_task(job) for job in work]
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            next(job for job in jobs if job.done()).result()
        finally:
            await cancel_and_wait(*jobs)

    async def abandon(self) -> None:
        """After a cancelled `run`: releases every task and deregisters, within DEREGISTER_SECONDS."""
        if self._is_deregistered:
            return
        self._release_all()
        async with background_task(self._reporter.run()):
            try:
                async with asyncio.timeout(DEREGISTER_SECONDS):
                    await self._reporter.all_delivered()
                    await self._deregister()
            except TimeoutError:
                log.error(
                    "report delivery timed out; held tasks return when the heartbeat times out",
                    unsent=self.unsent_count,
                )

    def end(self) -> None:
        self._executor.end()
        self._tracer.end()

    def handle_reply(self, worker_id: str, reply: ServiceReply) -> None:
        """Handles all but the tasks of a reply to a poll or a heartbeat."""
        self._circuits.update(worker_id, reply.blocked_types)
        self._handle_side_effects(worker_id, reply)

    def _handle_side_effects(self, worker_id: str, reply: ServiceReply) -> None:
        """Handles the fields that every reply may have."""
        if reply.cancel:
            self._check_cancelled(worker_id, Counter(reply.cancel))
        if reply.should_drain and not self.is_draining:
            log.info("drain requested", worker_id=worker_id)
            self.drain()

    def on_unknown_worker(self, worker_id: str) -> None:
        """Drops the id, so that the poller registers again, and checks every lease taken under it."""
        if worker_id == self.worker_id:
            self._circuits = CircuitLog()
            self._poller.on_unknown_worker()
            self._check_all_leases(worker_id)

    async def _claim_until_drained(self, drain_seconds: float) -> None:
        async with (
            background_task(self._poller.run()) as claiming,
            background_task(self._drain_requested.wait()) as draining,
        ):
            await asyncio.wait((claiming, draining), return_when=asyncio.FIRST_COMPLETED)
            if claiming.done():
                claiming.result()
        # The waiting poll was interrupted: the service notices and claims nothing for it.
        log.info("drain started", worker_id=self.worker_id, running=len(self.attempts))
        await self._slots.wait_for_all(drain_seconds)
        self._release_all()
        await self._reporter.all_delivered()
        await self._deregister()

    def _open_report_buffer(self, worker_id: str) -> None:
        self._report_buffer = self._reporter.new_buffer(worker_id)
        self._tracer.queue_name = self._poller.queue_name

    def _accept_tasks(self, worker_id: str, reply: ServiceReply, sent_at: float) -> None:
        self.handle_reply(worker_id, reply)
        if not reply.tasks or self._report_buffer is None:
            return
        if self._poller.is_paused or worker_id != self._report_buffer.worker_id:
            # Claimed before the pause, or under a former id.
            buffer = self._reporter.new_buffer(worker_id)
            buffer.release([HeldTask(task.task_id, task.lease) for task in reply.tasks])
            return
        self._slots.acquire(len(reply.tasks))
        seconds, to_start = time.monotonic() - sent_at, list[AssignedTask]()
        for task in reply.tasks:
            if task.is_started and seconds < min(self.heartbeat_seconds, task.timeout_seconds):
                self._begin(task, self._report_buffer)
            else:
                to_start.append(task)
        if to_start:
            self._run_in_background(self._start(to_start, self._report_buffer))

    async def _start(self, tasks: Sequence[AssignedTask], buffer: ReportBuffer) -> None:
        """Runs only the tasks whose start the service accepts: an assignment may have lapsed on the way."""
        outcomes = await buffer.start([HeldTask(task.task_id, task.lease) for task in tasks])
        for task, outcome in zip(tasks, outcomes, strict=True):
            if not outcome.ok:
                log.info("task start refused", task_id=task.task_id, problem=outcome.code)
                self._slots.release()
            elif self._is_releasing:
                buffer.release([HeldTask(task.task_id, task.lease)])
            else:
                self._begin(task, buffer)

    def _begin(self, task: AssignedTask, buffer: ReportBuffer) -> None:
        context = TaskContext(
            task.task_id, task.task_type, task.attempt, task.lease, task.timeout_seconds, buffer, task.traceparent
        )
        handler = self._handlers.get(task.task_type)
        if handler is None:
            error = Fail(f"this worker has no handler for {task.task_type}", code="NO_HANDLER")
            document = msgspec.Raw(error_document(error))
            buffer.finish([Result(task_id=task.task_id, lease=task.lease, status="failed", error=document)])
            self._slots.release()
            return
        attempt = Attempt(task, handler, context, buffer)
        self.attempts[task.lease] = attempt
        self._executor.begin(attempt)

    def _done(self, ended: Sequence[tuple[Attempt, Result]]) -> None:
        """Attempts that were released meanwhile are not reported."""
        for attempt, result in ended:
            if self.attempts.pop(attempt.task.lease, None) is None:
                self._tracer.end_processing(attempt.task.lease)
                continue
            self._tracer.begin_settling(attempt.task, attempt.report_buffer.worker_id)
            attempt.report_buffer.finish([result])
            self._slots.release()

    def _stop_attempt(self, lease: str) -> None:
        if attempt := self.attempts.get(lease):
            attempt.stop()

    def _check_cancelled(self, worker_id: str, cancelled: Counter[str]) -> None:
        """`cancelled` counts a task id once for each attempt of it that was cancelled lately.

        The attempt running here may be a later one, so each increase is followed by a check of the lease.
        """
        to_check = list[Attempt]()
        for attempt in self.attempts.values():
            is_of_worker = attempt.report_buffer.worker_id == worker_id
            count = cancelled[attempt.task.task_id] if is_of_worker else attempt.cancel_count
            if count > attempt.cancel_count and not attempt.context.is_cancelled:
                to_check.append(attempt)
            attempt.cancel_count = count
        self._check_leases(to_check)

    def _check_all_leases(self, worker_id: str) -> None:
        """The service dropped this worker id: check for each task whether the lease still holds."""
        self._check_leases(
            [attempt for attempt in self.attempts.values() if attempt.report_buffer.worker_id == worker_id]
        )

    def _check_leases(self, attempts: Sequence[Attempt]) -> None:
        for buffer in {attempt.report_buffer for attempt in attempts}:
            of_buffer = [attempt for attempt in attempts if attempt.report_buffer is buffer]
            self._run_in_background(self._stop_if_lost(of_buffer, buffer))

    async def _stop_if_lost(self, attempts: Sequence[Attempt], buffer: ReportBuffer) -> None:
        """Repeats the start: it changes nothing for the lease holder and is refused otherwise."""
        outcomes = await buffer.start([HeldTask(attempt.task.task_id, attempt.task.lease) for attempt in attempts])
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            if not outcome.ok:
                log.info("lease lost", task_id=attempt.task.task_id, problem=outcome.code)
                attempt.stop()

    async def _watch_deadlines(self) -> None:
        """Stops attempts whose deadline has passed, also while the service is unreachable: it requeues their tasks."""
        while True:
            await asyncio.sleep(DEADLINE_CHECK_SECONDS)
            for attempt in list(self.attempts.values()):
                if attempt.context.overdue_seconds > 0 and not attempt.context.is_cancelled:
                    log.warning("execution deadline passed", task_id=attempt.task.task_id)
                    attempt.stop()

    def _release_all(self) -> None:
        self._is_releasing = True
        self._poller.pause()
        attempts = list(self.attempts.values())
        self.attempts.clear()
        for attempt in attempts:
            attempt.stop()
            attempt.report_buffer.release([HeldTask(attempt.task.task_id, attempt.task.lease)])

    async def _deregister(self) -> None:
        self._is_deregistered = True
        if self.worker_id:
            try:
                await self._api.deregister(self.worker_id)
            except (Unreachable, ServiceRefusal) as error:
                log.warning("deregistration failed; held tasks return when the heartbeat times out", error=str(error))

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Keeps a reference: the loop holds only weak references to its tasks."""
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        job.add_done_callback(_log_failure)


def _log_failure(job: asyncio.Task[None]) -> None:
    if not job.cancelled() and (error := job.exception()):
        log.error("background job failed; tasks not started return when the assignment times out", exc_info=error)
