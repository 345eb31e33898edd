"""The queue's verbs: submit, claim, cancel, retry, replay, purge, sweep, and reading a task.

Each method is one script call: it packs arguments, and unpacks the reply or raises what the script refused.
What a lease holder may say is in `attempts.py`; workers are in `fleet.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from tideq.queue_core.circuits import parse_circuits
from tideq.queue_core.engine.checks import check_batch
from tideq.queue_core.engine.clock import StoreTime
from tideq.queue_core.engine.gathering import Gathering
from tideq.queue_core.engine.polls import Peek, Poll, Use, make_poll, parse_head, parse_standing, parse_use
from tideq.queue_core.engine.record import NAMES, without_number
from tideq.queue_core.engine.replies import Outcome, accepted, instant, number, outcomes, text
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.engine.submission import (
    Batch,
    Prepared,
    Submissions,
    in_rows,
    share_one_key,
    unpack_definition,
)
from tideq.queue_core.engine.views import task_view
from tideq.queue_core.errors import InvalidTask, TaskNotFound
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Bucket, Claim, ClaimedTask, Definition, NewTask, Stop, Submitted, Task
from tideq.queue_core.task_id import TaskIds, made_together
from tideq.queue_core.transitions import transition

SWEEP_LIMIT = 100
MAX_CLAIM_BYTES = 4 * 2**20
"""Of definitions in one answer; the one that goes past it still counts. A larger answer would hold everybody up."""
FEW_TASKS, READ_AT_ONCE = 4, 50
"""Answers with more tasks than a few are bulk; of tasks that are read so many come in one answer."""
STATE, ATTEMPT, LEASE, TIMEOUT_MS, VISIBLE_MS = map(
    NAMES.index, ("state", "attempt", "lease", "timeout_ms", "visible_ms")
)
RANK = NAMES.index("rank")
CLAIMED_END = max(STATE, ATTEMPT, LEASE, TIMEOUT_MS, VISIBLE_MS) + 1
RETRIES, LOSSES = (NAMES.index(name) - CLAIMED_END for name in ("retries", "losses"))

log = structlog.get_logger(__name__)


class KeptTask(msgspec.Struct, frozen=True):
    """A task's record and definition as history kept them, packed as the store had them."""

    record: bytes
    definition: bytes


class Admission(NamedTuple):
    """What the queue lets into one of its several partitions."""

    most_new: int | None = None
    """Tasks that are not known yet; raises TooManyNew for more. `None` is any number."""
    is_counted: bool = False
    """Because the depth is near a limit."""


ALL = Admission()


OnRevived = Callable[[str, Definition, int], None]
"""Takes a task's id, its definition, and the instant at which its new life began."""


class Removed(NamedTuple):
    """A row of `forget.lua`. Without a type it is not counted here as ended."""

    task_id: str
    idempotency: str
    task_type: str = ""
    state: str = ""


class Written(NamedTuple):
    submitted: list[Submitted]
    counted: int | None
    """How many tasks were ever counted so."""


class Queue:
    def __init__(self, scripts: Scripts, settings: QueueSettings, time: StoreTime, ids: TaskIds) -> None:
        """`time` and `ids`, which go by it, are those of the whole process."""
        self._scripts = scripts
        self._settings = settings
        self._time = time
        self._submissions = Submissions(settings, ids)
        self._gathering = Gathering(self._submit)

    async def open(self, epoch: str | None = None) -> str:
        """Work under the store's epoch, founding an empty store with the given one."""
        await self._time.learn(self._scripts)
        reply = await self._scripts.call("found", new_epoch=epoch or "1")
        self._scripts.epoch = text(accepted(reply)[0])
        return self._scripts.epoch

    async def submit(self, task: NewTask) -> Submitted:
        """Together with whatever else the client submits just now; whether it is taken does not depend on that."""
        (prepared,) = await self.prepare([task])
        return await self._gathering.submit(task.client_id, prepared)

    async def submit_many(self, tasks: Sequence[NewTask], *, wants_position: bool = False) -> list[Submitted]:
        """All or none. The tasks of one call come from one client."""
        client_id, prepared, is_one = await self._checked(tasks)
        return await self._submit(client_id, prepared, wants_position=wants_position, is_one=is_one)

    async def submit_here(
        self, tasks: Sequence[NewTask], *, wants_position: bool = False, admission: Admission = ALL
    ) -> Written:
        """The same as one of several partitions."""
        client_id, prepared, is_one = await self._checked(tasks)
        return await self._write(client_id, prepared, wants_position=wants_position, is_one=is_one, admission=admission)

    async def prepare(self, tasks: Sequence[NewTask], *, as_one: bool = False) -> list[Prepared]:
        """Checked, and with ids of this partition and of the store's time."""
        if not self._time.is_known:
            await self._time.learn(self._scripts)
        return self._submissions.prepare(tasks, as_one=as_one)

    async def submit_prepared(
        self,
        client_id: str,
        prepared: Sequence[Prepared],
        *,
        wants_position: bool,
        admission: Admission,
        not_after: int,
    ) -> Written:
        """Tasks whose keys were taken in other partitions, until this instant."""
        return await self._write(
            client_id, prepared, wants_position=wants_position, admission=admission, not_after=not_after
        )

    async def point(self, partition: int, rows: Sequence[tuple[str, str]]) -> tuple[int, list[str]]:
        """Take these keys (an id, and a key's name and fingerprint) for a batch that will be written elsewhere.

        Returns this instant, and of each row the task the key stands for already, or nothing.
        """
        now, *told = accepted(await self._scripts.call("point", partition=partition, rows=_flat(rows)))
        return number(now), [text(each) for each in told]

    async def confirm(self, rows: Sequence[tuple[str, str]], *, is_written: bool) -> None:
        """What became of such a batch, by id and key's name."""
        accepted(await self._scripts.call("confirm", is_written=int(is_written), rows=_flat(rows)))

    async def spend(self, client_id: str, count: int, rate: float, burst: int) -> Bucket:
        """So many submissions of a client, or with a negative count so many fewer."""
        reply = await self._scripts.call(
            "spend", client_id=client_id, count=count, client_rate=rate, client_burst=burst
        )
        return Bucket(*map(number, accepted(reply)[1]))

    async def depth(self) -> tuple[int, int, int]:
        """This instant, how many wait here, and how many were ever counted in as the depth was near a limit."""
        now, queued, taken = accepted(await self._scripts.call("depth"))
        return number(now), number(queued), number(taken)

    async def _checked(self, tasks: Sequence[NewTask]) -> tuple[str, list[Prepared], bool]:
        """Whose they are, as the script takes them, and whether one key stands for all of them."""
        check_batch(tasks)
        client_id = tasks[0].client_id
        if any(task.client_id != client_id for task in tasks):
            raise InvalidTask("client_id", "one submission speaks for one client")
        is_one = share_one_key(tasks)
        return client_id, await self.prepare(tasks, as_one=is_one), is_one

    async def _submit(
        self,
        client_id: str,
        prepared: Sequence[Prepared],
        *,
        wants_position: bool = True,
        is_one: bool = False,
    ) -> list[Submitted]:
        return (await self._write(client_id, prepared, wants_position=wants_position, is_one=is_one)).submitted

    async def _write(
        self,
        client_id: str,
        prepared: Sequence[Prepared],
        *,
        wants_position: bool,
        is_one: bool = False,
        admission: Admission = ALL,
        not_after: int | None = None,
    ) -> Written:
        batch = in_rows(prepared)
        reply = await self._scripts.call(
            "submit",
            client_id=client_id,
            is_listed=int(client_id in self._settings.admission.listed_clients),
            wants_position=int(wants_position),
            most_new="" if admission.most_new is None else admission.most_new,
            is_counted=int(admission.is_counted),
            not_after="" if not_after is None else not_after,
            has_own_ids=int(batch.has_own_ids),
            is_one=int(is_one),
            kinds=batch.kinds,
            rows=batch.rows,
        )
        now, held, counted, *told = accepted(reply)
        now_ms = number(now)
        self._time.note(now_ms)
        bucket = Bucket(*map(number, held)) if held else None
        submitted = _submitted(prepared, batch, told, now_ms, bucket)
        all_known = is_one and not submitted[-1].is_new
        return Written(_all_of(submitted) if all_known else submitted, instant(counted))

    async def claim(
        self,
        worker_id: str,
        wanted: int = 1,
        *,
        poll_id: str = "",
        assignment_ms: int | None = None,
        capabilities: Sequence[str] | None = None,
        starts: bool = False,
    ) -> Claim:
        """Take up to `wanted` tasks. The same `poll_id` again returns what it handed out and is still as it was then.

        `capabilities` are what the worker has just now, where that is not what it declared. With `starts` the tasks are
        executing when they are handed out; of an answer that is lost, and not asked for again by its `poll_id`, nothing
        comes back before the execution deadline.
        """
        poll = make_poll(worker_id, wanted, poll_id, assignment_ms, capabilities, starts=starts)
        return await self.claim_for(poll, wanted)

    async def claim_for(
        self,
        poll: Poll,
        wanted: int,
        max_rank: int | None = None,
        answer: int | None = None,
        permits: str = "",
        not_after: int | None = None,
        max_bytes: int = MAX_CLAIM_BYTES,
    ) -> Claim:
        """The same, as a part of something larger: nothing worse than `max_rank`, under a number given from outside.

        Limits that are kept for several partitions let out what `permits` says, until `not_after`.
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
        now, answer, again, status, drains, serves, stops, circuits, handed, taken = accepted(reply)
        tasks, unreadable = _handed(handed, _claimed if max_rank is None else _ranked)
        if unreadable:
            accepted(await self._scripts.call("set_aside", worker_id=poll.worker_id, rows=unreadable))
        return Claim(
            tasks=tasks,
            answer=number(answer),
            now_ms=number(now),
            retry_at_ms=instant(again),
            stops=parse_stops(stops),
            worker_status=text(status),
            should_drain=number(drains) == 1,
            profile=text(serves),
            held_back=parse_circuits(text(circuits)) if circuits else (),
            is_repeat=bool(tasks) and token not in tasks[0].lease,
            taken=tuple(_taken(text(each)) for each in taken),
        )

    async def peek(self, poll: Poll, wanted: int, left: str = "") -> Peek:
        """What a claim would get. A sign of life like a claim, and like it brings back what has fallen due.

        `left` is what limits are known to have left, in the words of `permits`.
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
        now, again, status, drains, serves, stops, answer, live, heads, uses, standings, is_suspect = accepted(reply)
        return Peek(
            now_ms=number(now),
            retry_at_ms=instant(again),
            worker_status=text(status),
            should_drain=number(drains) == 1,
            profile=text(serves),
            stops=parse_stops(stops),
            answer=number(answer),
            live_count=number(live),
            heads=tuple(parse_head(text(head)) for head in heads),
            uses=tuple(parse_use(text(use)) for use in uses),
            standings=tuple(parse_standing(text(each)) for each in standings),
            is_suspect=number(is_suspect) == 1,
        )

    async def suspect(self, worker_id: str) -> None:
        """A task of this worker failed in another partition: `Peek.is_suspect` from now on."""
        accepted(await self._scripts.call("suspect", worker_id=worker_id))

    async def usage(self) -> tuple[int, tuple[Use, ...]]:
        """This instant, and how much of each limit is in use here."""
        now, uses = accepted(await self._scripts.call("usage"))
        return number(now), tuple(parse_use(text(use)) for use in uses)

    async def results(self, worker_id: str, task_types: Sequence[str]) -> list[tuple[int, int]]:
        """How many of the worker's latest results of each type here were good, and how many bad."""
        counts = list(map(number, accepted(await self._scripts.call("results", worker_id=worker_id, rows=task_types))))
        return list(zip(counts[::2], counts[1::2], strict=True))

    async def trial_turn(self, worker_id: str, token: str, *, is_over: bool = False) -> bool:
        """Whether it is this claim's turn to give the worker trials; with `is_over` the claim has ended."""
        reply = await self._scripts.call("trial_turn", worker_id=worker_id, token=token, is_over=int(is_over))
        return number(accepted(reply)[0]) == 1

    async def decide(self, worker_id: str, decisions: Sequence[tuple[str, str, int]], *, counts: bool) -> None:
        """Open or close circuits of a worker here; `counts` where this partition's statistics tell of it."""
        rows = _flat(decisions)
        accepted(await self._scripts.call("decide", worker_id=worker_id, counts=int(counts), rows=rows))

    async def known(self, rows: Sequence[tuple[str, str]]) -> list[bool]:
        """Which of these, each the name of an idempotency key or an id or both, stand for a task already."""
        return [number(each) == 1 for each in accepted(await self._scripts.call("known", rows=_flat(rows)))]

    async def withdraw(self, worker_id: str, poll_id: str, answer: int, *, starts: bool = False) -> int:
        """Take back an answer that could not be delivered; returns how many tasks went back.

        `starts` as in the claim: without it, what is executing was started by somebody who had the answer.
        """
        handed_as = TaskState.EXECUTING if starts else TaskState.ASSIGNED
        reply = await self._scripts.call(
            "withdraw", worker_id=worker_id, poll_id=poll_id, answer=str(answer), handed_as=handed_as
        )
        return number(accepted(reply)[0])

    async def cancel_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        """Details of an accepted cancel: the state it was in, and the worker that was told to stop, or none."""
        check_batch(task_ids)
        return outcomes(await self._scripts.call("cancel", rows=task_ids), task_ids)

    async def cancel(self, task_id: str) -> Outcome:
        return (await self.cancel_many([task_id]))[0].unwrap()

    async def retry(self, task_id: str, **options: Any) -> int:
        """Run a failed, dead or cancelled task again; see `revive` for the options."""
        return await self.revive("retry", Reason.RETRIED, task_id, **options)

    async def replay(self, task_id: str, **options: Any) -> int:
        """Send a dead letter back; see `revive` for the options."""
        return await self.revive("replay", Reason.REPLAYED, task_id, **options)

    async def purge_many(self, task_ids: Sequence[str]) -> list[Outcome]:
        check_batch(task_ids)
        return outcomes(await self._scripts.call("purge", rows=task_ids), task_ids)

    async def purge(self, task_id: str) -> Outcome:
        return (await self.purge_many([task_id]))[0].unwrap()

    async def forget_many(self, removed: Sequence[Removed]) -> None:
        """What is left of tasks that history removed and whose records are gone."""
        check_batch(removed)
        accepted(await self._scripts.call("forget", rows=_flat(removed)))

    async def sweep(self, limit: int = SWEEP_LIMIT) -> int:
        """Recover everything that has fallen due, a bounded number a script; returns how many moved."""
        total = 0
        while True:
            moved, due, tidied = map(number, accepted(await self._scripts.call("sweep", limit=limit)))
            total += moved
            if due == 0 or moved + tidied == 0:
                return total

    async def acknowledge(self, first_kept_id: str, finished: Sequence[tuple[str, int]]) -> None:
        """History has all events below this stream id; `finished` are terminal tasks it knows, with their version."""
        accepted(await self._scripts.call("acknowledge", first_kept_id=first_kept_id, rows=_flat(finished)))

    async def read_many(self, task_ids: Sequence[str]) -> list[Task | None]:
        """Tasks as the store has them now; `None` for those it does not have."""
        check_batch(task_ids)
        tasks: list[Task | None] = []
        for first in range(0, len(task_ids), READ_AT_ONCE):
            some = task_ids[first : first + READ_AT_ONCE]
            now, *rows = accepted(await self._scripts.call("read", rows=some, is_bulk=len(some) > FEW_TASKS))
            tasks += [task_view(task_id, number(now), row) for task_id, row in zip(some, rows, strict=True)]
        return tasks

    async def read(self, task_id: str) -> Task:
        found = (await self.read_many([task_id]))[0]
        if found is None:
            raise TaskNotFound(task_id)
        return found

    async def revive(
        self,
        verb: str,
        reason: Reason,
        task_id: str,
        *,
        keeps_budgets: bool = False,
        priority: str | None = None,
        kept: KeptTask | None = None,
        client_id: str = "operator",
        on_revived: OnRevived | None = None,
    ) -> int:
        """Returns the new version. A new priority brings its own retries and timeout.

        Reading the definition first decides nothing: it never changes. `kept` comes from history, for a task
        whose record may have left the store. With `on_revived` the task's record says that somebody tells of it.
        """
        definition = unpack_definition(kept.definition) if kept else (await self.read(task_id)).definition
        level = self._submissions.level(priority) if priority else None
        reply = await self._scripts.call(
            "revive",
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
            is_told=int(on_revived is not None),
        )
        subject = (task_id,) if reply.word in ("TASK_NOT_FOUND", "WRONG_STATE") else ()
        now_ms, version = map(number, accepted(reply, *subject))
        if on_revived is not None:
            on_revived(task_id, definition, now_ms)
        return version


def parse_stops(entries: Sequence[Any]) -> tuple[Stop, ...]:
    return tuple(Stop(*text(entry).split(" ", 1)) for entry in entries)


def _taken(written: str) -> tuple[str, int]:
    scope, count = written.split(" ")
    return scope, int(count)


def _flat(rows: Sequence[Sequence[Any]]) -> list[Any]:
    return [value for row in rows for value in row]


def _submitted(
    prepared: Sequence[Prepared], batch: Batch, told: Sequence[Any], now_ms: int, bucket: Bucket | None
) -> list[Submitted]:
    """Tasks that nothing is told of are new and rank as their kind does now.

    Told is `row|id` of a task that was known, `row|id|rank|visible|position` of others, and `*kind|position` of the
    first among those that nothing else is told of: they lie in a row.
    """
    answers, positions = dict[int, str](), dict[int, int]()
    for each in told:
        subject, _, answer = text(each).partition("|")
        if subject[0] == "*":
            positions[int(subject[1:])] = int(answer)
        else:
            answers[int(subject) - 1] = answer
    submitted: list[Submitted] = []
    for row, (task_id, kind, *_) in enumerate(prepared):
        if row in answers:
            submitted.append(_told(answers[row], now_ms, bucket))
            continue
        position = None
        if positions:
            position = positions[batch.numbers[kind]]
            positions[batch.numbers[kind]] += 1
        submitted.append(Submitted(task_id, True, now_ms + kind.offset_ms, None, position, now_ms, bucket))
    return submitted


def _told(answer: str, now_ms: int, bucket: Bucket | None) -> Submitted:
    task_id, _, placed = answer.partition("|")
    rank, visible_at, position = map(instant, placed.split("|")) if placed else (None, None, None)
    return Submitted(task_id, bool(placed), rank, visible_at, position, now_ms, bucket)


def _all_of(known: Sequence[Submitted]) -> list[Submitted]:
    """Tasks that were submitted as one before: the script knows the last of them."""
    ids = made_together(known[-1].task_id, len(known))
    return [msgspec.structs.replace(each, task_id=own_id) for each, own_id in zip(known, ids, strict=True)]


def _handed(
    flat: Sequence[Any], read: Callable[[Sequence[Any]], ClaimedTask]
) -> tuple[tuple[ClaimedTask, ...], list[bytes]]:
    """The tasks that can be read, and id and lease of each that cannot: those are not handed to anybody."""
    tasks: list[ClaimedTask] = []
    unreadable: list[bytes] = []
    for at in range(0, len(flat), 3):
        try:
            tasks.append(read(flat[at : at + 3]))
        except (ValueError, IndexError) as error:
            task_id, packed, _ = flat[at : at + 3]
            problem = "its record is cut off" if isinstance(error, IndexError) else str(error)
            log.error("task set aside", task_id=task_id.decode(errors="replace"), problem=problem)
            unreadable += (task_id, without_number(packed).split(b"\0", LEASE + 1)[LEASE])
    return tuple(tasks), unreadable


def _ranked(parts: Sequence[Any]) -> ClaimedTask:
    rank = text(without_number(parts[1])).split("\0", RANK + 1)[RANK]
    return msgspec.structs.replace(_claimed(parts), rank=int(rank))


def _claimed(parts: Sequence[Any]) -> ClaimedTask:
    task_id, packed, definition = parts
    # Only the head of the record: reading all of it takes four times as long, for twenty values nobody asks for here.
    values = text(without_number(packed)).split("\0", CLAIMED_END)
    attempt = int(values[ATTEMPT])
    spent = values[CLAIMED_END].split("\0", LOSSES + 1) if attempt > 1 else ()
    return ClaimedTask(
        task_id=text(task_id),
        definition=unpack_definition(definition or b""),
        attempt=attempt,
        lease=values[LEASE],
        timeout_ms=int(values[TIMEOUT_MS]),
        visible_at_ms=int(values[VISIBLE_MS]),
        is_started=values[STATE] == TaskState.EXECUTING,
        retry_count=int(spent[RETRIES]) if spent else 0,
        losses=int(spent[LOSSES]) if spent else 0,
    )
