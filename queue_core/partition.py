"""One partition of the queue. Each method is one script call: it packs the arguments, unpacks the reply, and raises the
script's refusal.

`queue.py` combines partitions; calls of lease holders are in `attempts.py`, calls about workers in `worker_calls.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from tideq.queue_core.claim_reply import parse_claim, parse_peek
from tideq.queue_core.errors import TaskNotFound
from tideq.queue_core.polls.poll import Peek, Poll, Use, parse_use
from tideq.queue_core.scripts.replies import Outcome, accepted, instant, number, outcomes, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.scripts.task_view import task_view
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.store.clock import StoreTime
from tideq.queue_core.store.formats import FIRST_FORMAT
from tideq.queue_core.submission import (
    Prepared,
    Submissions,
    in_rows,
    merged_answers,
    of_repeated_batch,
    share_one_key,
    unpack_definition,
)
from tideq.queue_core.submit_batcher import SubmitBatcher
from tideq.queue_core.task import Claim, Definition, NewTask, RateLimitState, Submitted, Task
from tideq.queue_core.task_id import TaskIds
from tideq.queue_core.transitions import transition

SWEEP_LIMIT = 100
MAX_CLAIM_BYTES = 4 * 2**20
"""Limit on the definitions in one reply; the task that exceeds it is included. Larger replies would delay others."""
FEW_TASKS, READ_AT_ONCE = 4, 50
"""Replies with more than FEW_TASKS tasks are bulk; one script call reads at most READ_AT_ONCE tasks."""


class KeptTask(msgspec.Struct, frozen=True):
    """A task's record and definition from history, packed in the store's form."""

    record: bytes
    definition: bytes


class AdmissionTerms(NamedTuple):
    """What the queue accepts in one of its several partitions."""

    most_new: int | None = None
    """Tasks that do not exist yet; raises TooManyNew for more. `None` is any number."""
    is_counted: bool = False
    """Because the depth is near a limit."""


ALL = AdmissionTerms()


OnRequeued = Callable[[str, Definition, int], None]
"""Takes a task's id, its definition, and the instant at which its new life began."""


class Removed(NamedTuple):
    """A row of `forget.lua`. Without a type the task is not subtracted from the counts of ended tasks."""

    task_id: str
    idempotency: str
    task_type: str = ""
    state: str = ""


class Written(NamedTuple):
    submitted: list[Submitted]
    counted: int | None
    """Tasks ever counted with the admission `counted`."""


class Partition:
    def __init__(self, scripts: Scripts, settings: QueueSettings, time: StoreTime, ids: TaskIds) -> None:
        """`time` and `ids`, which go by it, are those of the whole process."""
        self._scripts = scripts
        self._settings = settings
        self._time = time
        self._submissions = Submissions(settings, ids)
        self._batcher = SubmitBatcher(self._submit)

    async def open(self, epoch: str | None = None) -> str:
        """Adopt and return the store's epoch; an empty store is initialised with the given one."""
        await self._time.read(self._scripts)
        reply = await self._scripts.call("init_store", new_epoch=epoch or "1", first_format=FIRST_FORMAT)
        self._scripts.epoch = text(accepted(reply)[0])
        return self._scripts.epoch

    async def submit(self, task: NewTask) -> Submitted:
        """Submit one task. Concurrent calls of one client share a script call; each is accepted or refused alone."""
        (prepared,) = await self.prepare([task])
        return await self._batcher.submit(task.client_id, prepared)

    async def submit_many(
        self, tasks: Sequence[NewTask], *, include_position: bool = False, admission: AdmissionTerms = ALL
    ) -> Written:
        """Submit all tasks or none. All tasks of one call belong to one client."""
        is_one = share_one_key(tasks)
        prepared = await self.prepare(tasks, as_one=is_one)
        return await self._write(
            tasks[0].client_id, prepared, include_position=include_position, is_one=is_one, admission=admission
        )

    async def prepare(self, tasks: Sequence[NewTask], *, as_one: bool = False) -> list[Prepared]:
        """Returns the tasks checked, with ids of this partition and of the store's time."""
        if not self._time.is_read:
            await self._time.read(self._scripts)
        return self._submissions.prepare(tasks, as_one=as_one)

    async def submit_prepared(
        self,
        client_id: str,
        prepared: Sequence[Prepared],
        *,
        include_position: bool,
        admission: AdmissionTerms,
        not_after: int,
    ) -> Written:
        """Submit tasks whose idempotency keys are reserved in other partitions until `not_after`."""
        return await self._write(
            client_id, prepared, include_position=include_position, admission=admission, not_after=not_after
        )

    async def reserve_keys(self, partition: int, rows: Sequence[tuple[str, str]]) -> tuple[int, list[str]]:
        """Reserve idempotency keys here for a batch that another partition will write.

        A row is a task id and the key's name with its fingerprint. Returns the store's time, and for each row the id of
        the task that already has the key, or an empty text.
        """
        now, *existing = accepted(await self._scripts.call("reserve_keys", partition=partition, rows=_flat(rows)))
        return number(now), [text(each) for each in existing]

    async def settle_keys(self, rows: Sequence[tuple[str, str]], *, is_written: bool) -> None:
        """Make reservations final or drop them, once the batch was written or not; rows are id and key's name."""
        accepted(await self._scripts.call("settle_keys", is_written=int(is_written), rows=_flat(rows)))

    async def spend(self, client_id: str, count: int, rate: float, burst: int) -> RateLimitState:
        """Take `count` submissions from a client's rate limit; a negative count gives some back."""
        reply = await self._scripts.call(
            "spend_client_rate", client_id=client_id, count=count, client_rate=rate, client_burst=burst
        )
        return RateLimitState(*map(number, accepted(reply)[1]))

    async def depth(self) -> tuple[int, int, int]:
        """Returns the store's time, the waiting tasks here, and the tasks ever accepted as `counted`."""
        now, queued, counted = accepted(await self._scripts.call("depth"))
        return number(now), number(queued), number(counted)

    async def _submit(self, client_id: str, prepared: Sequence[Prepared]) -> list[Submitted]:
        return (await self._write(client_id, prepared, include_position=True)).submitted

    async def _write(
        self,
        client_id: str,
        prepared: Sequence[Prepared],
        *,
        include_position: bool,
        is_one: bool = False,
        admission: AdmissionTerms = ALL,
        not_after: int | None = None,
    ) -> Written:
        batch = in_rows(prepared)
        reply = await self._scripts.call(
            "submit",
            client_id=client_id,
            is_listed=int(client_id in self._settings.admission.listed_clients),
            include_position=int(include_position),
            most_new="" if admission.most_new is None else admission.most_new,
            is_counted=int(admission.is_counted),
            not_after="" if not_after is None else not_after,
            has_own_ids=int(batch.has_own_ids),
            is_one=int(is_one),
            kinds=batch.kinds,
            rows=batch.rows,
        )
        now, limit, counted, *answers = accepted(reply)
        now_ms = number(now)
        self._time.note(now_ms)
        bucket = RateLimitState(*map(number, limit)) if limit else None
        submitted = merged_answers(prepared, batch, answers, now_ms, bucket)
        is_repeated_batch = is_one and not submitted[-1].is_new
        return Written(of_repeated_batch(submitted) if is_repeated_batch else submitted, instant(counted))

    async def claim(
        self,
        poll: Poll,
        wanted: int,
        max_rank: int | None = None,
        answer: int | None = None,
        permits: str = "",
        not_after: int | None = None,
        max_bytes: int = MAX_CLAIM_BYTES,
    ) -> Claim:
        """Claim up to `wanted` tasks. Of several partitions: ranks up to `max_rank`, under the given answer number.

        `permits` are the shares of limits that all partitions have in common, valid until `not_after`.
        """
        token = poll.token
        reply = await self._scripts.call(
            "claim",
            is_bulk=wanted > FEW_TASKS,
            worker_id=poll.worker_id,
            wanted=wanted,
            max_bytes=max_bytes,
            poll_id=poll.poll_id,
            starts=int(poll.starts),
            lease_token=token,
            circuit_shares=poll.circuit_shares,
            capabilities=poll.capabilities,
            assignment_ms=poll.assignment_ms or self._settings.leases.assignment_ms,
            max_rank="" if max_rank is None else max_rank,
            answer_number="" if answer is None else answer,
            permits_given=permits,
            not_after="" if not_after is None else not_after,
        )
        claimed, unreadable = parse_claim(accepted(reply), token, with_ranks=max_rank is not None)
        if unreadable:
            accepted(await self._scripts.call("set_aside", worker_id=poll.worker_id, rows=unreadable))
        return claimed

    async def peek(self, poll: Poll, wanted: int, left: str = "") -> Peek:
        """Returns what a claim would get. Like a claim, it counts as a heartbeat and recovers due tasks.

        `left` is what shared limits have left, in the form of `permits`.
        """
        reply = await self._scripts.call(
            "peek",
            worker_id=poll.worker_id,
            wanted=wanted,
            poll_id=poll.poll_id,
            capabilities=poll.capabilities,
            left=left,
            circuit_shares=poll.circuit_shares,
        )
        return parse_peek(accepted(reply))

    async def mark_suspect(self, worker_id: str) -> None:
        """Note that a task of this worker failed in another partition: sets `Peek.is_suspect`."""
        accepted(await self._scripts.call("mark_suspect", worker_id=worker_id))

    async def usage(self) -> tuple[int, tuple[Use, ...]]:
        """Returns the store's time and the use of each limit in this partition."""
        now, uses = accepted(await self._scripts.call("read_usage"))
        return number(now), tuple(parse_use(text(use)) for use in uses)

    async def results(self, worker_id: str, task_types: Sequence[str]) -> list[tuple[int, int]]:
        """Returns for each type how many of the worker's latest results here were good, and how many bad."""
        counts = list(
            map(number, accepted(await self._scripts.call("worker_results", worker_id=worker_id, rows=task_types)))
        )
        return list(zip(counts[::2], counts[1::2], strict=True))

    async def trial_turn(self, worker_id: str, token: str, *, is_over: bool = False) -> bool:
        """Whether it is this claim's turn to give the worker trials; with `is_over` the claim has ended."""
        reply = await self._scripts.call("trial_turn", worker_id=worker_id, token=token, is_over=int(is_over))
        return number(accepted(reply)[0]) == 1

    async def set_circuits(self, worker_id: str, decisions: Sequence[tuple[str, str, int]], *, counts: bool) -> None:
        """Open or close a worker's circuits here; `counts` if this partition's statistics count the opening."""
        rows = _flat(decisions)
        accepted(await self._scripts.call("set_circuits", worker_id=worker_id, counts=int(counts), rows=rows))

    async def find_existing(self, rows: Sequence[tuple[str, str]]) -> list[bool]:
        """Returns for each row, an idempotency key's name or a task id or both, whether a task already has it."""
        return [number(each) == 1 for each in accepted(await self._scripts.call("find_existing", rows=_flat(rows)))]

    async def undo_claim(self, worker_id: str, poll_id: str, answer: int, *, starts: bool = False) -> int:
        """Release the tasks of a claim reply that could not be delivered; returns how many were released.

        `starts` as in the claim: without it, executing tasks prove that the reply arrived and are left alone.
        """
        handed_as = TaskState.EXECUTING if starts else TaskState.ASSIGNED
        reply = await self._scripts.call(
            "undo_claim", worker_id=worker_id, poll_id=poll_id, answer=str(answer), handed_as=handed_as
        )
        return number(accepted(reply)[0])

    async def cancel_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        """Returns outcomes whose details hold the previous state and the worker that gets the stop, if any."""
        return outcomes(await self._scripts.call("cancel", rows=task_ids), task_ids)

    async def purge_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        return outcomes(await self._scripts.call("purge", rows=task_ids), task_ids)

    async def forget_many(self, removed: Sequence[Removed]) -> None:
        """Remove the remains of tasks that history deleted and whose records are gone."""
        accepted(await self._scripts.call("forget", rows=_flat(removed)))

    async def sweep(self, limit: int = SWEEP_LIMIT) -> int:
        """Recover all due tasks, a bounded number in each script call; returns how many tasks moved."""
        total = 0
        while True:
            moved, due, tidied = map(number, accepted(await self._scripts.call("sweep", limit=limit)))
            total += moved
            if due == 0 or moved + tidied == 0:
                return total

    async def acknowledge(self, first_kept_id: str, finished: Sequence[tuple[str, int]]) -> None:
        """Trim the outbox below this stream id. `finished` are terminal tasks that history has, with their version."""
        accepted(await self._scripts.call("acknowledge", first_kept_id=first_kept_id, rows=_flat(finished)))

    async def read_many(self, task_ids: Sequence[str]) -> list[Task | None]:
        """Returns the tasks as stored now, None for each that the store does not have. Costs a call for 50 tasks."""
        tasks: list[Task | None] = []
        for first in range(0, len(task_ids), READ_AT_ONCE):
            some = task_ids[first : first + READ_AT_ONCE]
            now, *rows = accepted(await self._scripts.call("read", rows=some, is_bulk=len(some) > FEW_TASKS))
            tasks += [task_view(task_id, number(now), row) for task_id, row in zip(some, rows, strict=True)]
        return tasks

    async def _definition(self, task_id: str) -> Definition:
        (found,) = await self.read_many([task_id])
        if found is None:
            raise TaskNotFound(task_id)
        return found.definition

    async def requeue(
        self,
        verb: str,
        reason: Reason,
        task_id: str,
        *,
        keeps_budgets: bool = False,
        priority: str | None = None,
        kept: KeptTask | None = None,
        client_id: str = "operator",
        on_requeued: OnRequeued | None = None,
    ) -> int:
        """Requeue a terminal task; returns its new version. A new priority brings its own retries and timeout.

        `kept` comes from history, for a task whose record may have left the store. Reading the definition in a separate
        call is safe, because definitions never change. With `on_requeued` the record notes that the order has a span.
        """
        definition = unpack_definition(kept.definition) if kept else await self._definition(task_id)
        level = self._submissions.level(priority) if priority else None
        reply = await self._scripts.call(
            "requeue",
            task_id=task_id,
            sources=",".join(transition(verb).sources),
            reason=reason,
            keeps_budgets=int(keeps_budgets),
            priority=priority or "",
            offset_ms=level.offset_ms - definition.head_start_ms if level else "",
            max_retries=level.max_retries if level else "",
            timeout_ms=level.timeout_ms if level else "",
            signature=definition.signature,
            kept_record=kept.record if kept else "",
            kept_definition=kept.definition if kept else "",
            client_id=client_id,
            is_traced=int(on_requeued is not None),
        )
        refused_for = (task_id,) if reply.word in ("TASK_NOT_FOUND", "WRONG_STATE") else ()
        now_ms, version = map(number, accepted(reply, *refused_for))
        if on_requeued is not None:
            on_requeued(task_id, definition, now_ms)
        return version


def _flat(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [value for row in rows for value in row]
