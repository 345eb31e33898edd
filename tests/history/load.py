"""A queue in use: producers, workers, an operator and a sweeper, all of whom note what they were told."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from tests.history.witness import Ledger
from tests.kit import Kit
from tideq.queue_core.attempts import AttemptVerb, Failure, LeaseRef, Success
from tideq.queue_core.errors import Conflict
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.scripts.replies import Outcome
from tideq.queue_core.settings import Leases, QueueSettings, Retention
from tideq.queue_core.task import ClaimedTask, NewTask

BUSY = QueueSettings(
    leases=Leases(assignment_ms=500),
    retention=Retention(result_ttl_ms=300),
    backoff=Backoff(base_ms=50, cap_ms=200),
)
"""Everything falls due within a test: lapsed claims, retries, and the time finished tasks stay in the store."""
TEXTS = (
    b'"plain"',
    b'"tab\\tand \\\\N"',
    b'{"two":\n\t"lines\\n"}',
    '"héé 😀 \\u0000"'.encode(),
    b'"\\\\."',
    b"[1e400]",
)
PAUSE_SECONDS = 0.012
WORKERS = 3


class Load:
    """Many small calls rather than few large ones: every call is an entry of its own in the outbox."""

    def __init__(self, kit: Kit, ledger: Ledger, seed: int = 1) -> None:
        self._kit = kit
        self.ledger = ledger
        self._random = random.Random(seed)
        self._is_over = False
        self._number = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Ends between two calls, so that every answer is noted."""
        workers = [f"w{number}" for number in range(WORKERS)]
        for worker_id in workers:
            await self._kit.worker(worker_id, capacity=1_000)
        rounds = [self._produce, self._operate, self._sweep, *(self._worker(worker_id) for worker_id in workers)]
        loops = [asyncio.create_task(self._repeat(each)) for each in rounds]
        try:
            yield
        finally:
            self._is_over = True
            await asyncio.gather(*loops)

    async def _repeat(self, act: Callable[[], Awaitable[None]]) -> None:
        while not self._is_over:
            await act()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _produce(self) -> None:
        for size in (1, 1, 3):
            tasks = [self._task() for _ in range(size)]
            for task, submitted in zip(tasks, await self._kit.queue.submit_many(tasks), strict=True):
                self.ledger.submitted(submitted.task_id, task.parameters)

    def _task(self) -> NewTask:
        self._number += 1
        text = TEXTS[self._number % len(TEXTS)]
        tags = {"shard": str(self._number % 3)} if self._number % 4 == 0 else {}
        return NewTask(task_type="resize", parameters=b'{"n":%d,"text":%b}' % (self._number, text), tags=tags)

    def _worker(self, worker_id: str) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            claim = await self._kit.queue.claim(worker_id, 6)
            if len(claim.tasks) > 1:
                await self._work(worker_id, claim.tasks[1:])

        return work

    async def _work(self, worker_id: str, tasks: Sequence[ClaimedTask]) -> None:
        """The first of a claim is left alone and lapses."""
        started = await self._kit.attempts.start(worker_id, [LeaseRef(task.task_id, task.lease) for task in tasks])
        for task, outcome in zip(tasks, started, strict=True):
            if not outcome.error:
                await self._settle(worker_id, task)

    async def _settle(self, worker_id: str, task: ClaimedTask) -> None:
        chance = self._random.random()
        if chance < 0.6:
            await self._complete(worker_id, task)
        elif chance < 0.95:
            await self._fail(worker_id, task, "retry" if chance < 0.75 else "discard" if chance < 0.85 else "fail")
        else:
            await self._kit.attempts.release(worker_id, [LeaseRef(task.task_id, task.lease)])

    async def _complete(self, worker_id: str, task: ClaimedTask) -> None:
        result = b'{"by":"%b","was":%b}' % (worker_id.encode(), self._random.choice(TEXTS))
        (outcome,) = await self._kit.attempts.complete(worker_id, [Success(task.task_id, task.lease, result)])
        if not outcome.error:
            self.ledger.completed(task.task_id, result)

    async def _fail(self, worker_id: str, task: ClaimedTask, verdict: AttemptVerb) -> None:
        error = b'{"message":"attempt %d broke\\tat %s"}' % (task.attempt, self._random.randbytes(4).hex().encode())
        failure = Failure(task.task_id, task.lease, error, verdict=verdict)
        (outcome,) = await self._kit.attempts.fail(worker_id, [failure])
        if not outcome.error:
            self.ledger.failed(task.task_id, outcome.details[0], error)

    async def _operate(self) -> None:
        """Cancels, retries and purges here and there; what comes too late is refused and changes nothing."""
        ids = self.ledger.ids[-200:]
        if ids and (task_id := self._random.choice(ids)) not in self.ledger.purged:
            await self._cancel(task_id)
        task_id, chance = next(reversed(self.ledger.endings), ""), self._random.random()
        if task_id and task_id not in self.ledger.purged and chance < 0.2:
            await (self._retry if chance < 0.15 else self._purge)(task_id)

    async def _cancel(self, task_id: str) -> None:
        (outcome,) = await self._kit.queue.cancel_many([task_id])
        if not outcome.error:
            self.ledger.ended(task_id, "cancelled")

    async def _retry(self, task_id: str) -> None:
        state = self.ledger.endings.pop(task_id)
        try:
            await self._kit.queue.retry(task_id)
        except Conflict:
            self.ledger.endings[task_id] = state

    async def _purge(self, task_id: str) -> None:
        self.ledger.purged.add(task_id)
        outcome: Outcome = (await self._kit.queue.purge_many([task_id]))[0]
        if outcome.error:
            self.ledger.purged.discard(task_id)

    async def _sweep(self) -> None:
        await self._kit.queue.sweep()
