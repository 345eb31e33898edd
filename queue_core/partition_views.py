"""Read-only views of one partition: statistics, the explanation of a task, a snapshot for the invariants.

Each method is one script call; `inspector.py` combines partitions.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from tideq.queue_core.circuits import parse_circuits
from tideq.queue_core.controls import Control, parse_control, parse_controls
from tideq.queue_core.invariants import Snapshot
from tideq.queue_core.lanes import serves, task_type_of, worker_profile
from tideq.queue_core.samples import MAX_TASK_TYPES, OTHER
from tideq.queue_core.scripts.record import parse_record, readable_record
from tideq.queue_core.scripts.replies import accepted, counts, instant, lossy_text, number, number_or_none, pairs, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.states import TaskState, state_named
from tideq.queue_core.store.ended_tasks import OTHERS, counted_since_ms, ended_counts

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
LIVE_STATES = ("queued", "assigned", "executing")


class WorkerCounts(msgspec.Struct, frozen=True):
    active: int
    draining: int
    unhealthy: int
    dead: int
    total_capacity: int
    used_capacity: int
    open_circuits: int
    """Workers with a circuit that is open or on trial."""
    open_circuits_by_type: dict[str, int]
    """Circuits that are open or on trial, by task type; `*` for all types together."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    total_depth: int
    by_state: dict[str, int]
    by_type: dict[str, int]
    """Waiting tasks."""
    by_priority: dict[str, int]
    recent: dict[str, int]
    """Event counts: `completed`, `failed` and `duration_ms` of the last minute, all others of the last hour."""
    workers: WorkerCounts
    controls: dict[str, Control]
    dead_letter_count: int
    outbox_length: int
    due_count: int
    ready_count: int
    """Waiting tasks that are not hidden."""
    ages: dict[tuple[str, int], int]
    """Waiting tasks by priority and the minute from which on they may run, as Unix milliseconds."""
    totals: dict[str, int]
    """Recoveries by kind, since the store was created."""
    counted: dict[tuple[str, str], int]
    """Tasks by type and state: live tasks, and ended tasks by their last state, without purged ones.

    Rare types among very many share the type `*`. Right after the store was emptied, counts may be too low or negative
    until history has corrected them."""
    counted_since_ms: int | None = None
    """Since when ended tasks are counted; None if history has corrected the counts, so that they are complete."""
    clock_ahead_ms: int = 0
    """How far the queue's time is ahead of the store's clock; negative while a jump forward is unconfirmed."""
    unreadable_count: int = 0
    """Live tasks set aside because they cannot be read."""

    @property
    def by_type_and_state(self) -> dict[str, dict[str, int]]:
        """Every state of each type. Of very many types those with the least to do, then the rarest, are `other`."""
        totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (task_type, state), count in self.counted.items():
            totals[OTHER if task_type == OTHERS else task_type][state] += count
        live = {task_type: sum(of_type[state] for state in LIVE_STATES) for task_type, of_type in totals.items()}
        names = sorted(totals.keys() - {OTHER}, key=lambda each: (-live[each], -totals[each].total(), each))
        for rare in names[MAX_TASK_TYPES:]:
            totals[OTHER].update(totals.pop(rare))
        return {
            task_type: {state: max(totals[task_type][state], 0) for state in TaskState} for task_type in sorted(totals)
        }

    def ended_count(self, state: TaskState) -> int:
        return max(sum(count for (_, each), count in self.counted.items() if each == state), 0)

    @property
    def finished_last_minute(self) -> int:
        """Executions that ended in the last minute, successful or not."""
        return self.recent.get("completed", 0) + self.recent.get("failed", 0)

    def age_ms(self, share: float, priority: str = "") -> int:
        """Returns the age that `share` of the tasks that may run, of one priority or all, do not exceed.

        A share of 1.0 gives the oldest age. Age counts from when a task may run: its submission, its `run_at` or the
        end of its backoff. Counted by the minute, so the result may be off by half a minute.
        """
        counts: Counter[int] = Counter()
        for (level, minute_ms), count in self.ages.items():
            if minute_ms <= self.now_ms and priority in ("", level):
                counts[minute_ms] += count
        wanted, seen = share * sum(counts.values()), 0
        for minute_ms in sorted(counts, reverse=True):
            seen += counts[minute_ms]
            if seen >= wanted:
                longest = max(self.now_ms - minute_ms, 0)
                return longest - min(longest, MINUTE_MS) // 2
        return 0


class Backlog(msgspec.Struct, frozen=True):
    """Tasks for workers. Autoscalers must use the sum: scaling by `ready` alone would stop busy workers."""

    ready: int
    held: int
    """Assigned or executing."""


class ServingWorker(msgspec.Struct, frozen=True, kw_only=True):
    """An active worker that serves a task's lane, with its circuit for the task's type."""

    worker_id: str
    open_until_ms: int | None = None
    """Until when the circuit is open; None if it is not."""
    trials_left: int | None = None
    """Trial tasks the worker may still get before their results decide; None if it is not on trial."""

    @property
    def may_take(self) -> bool:
        return self.open_until_ms is None and self.trials_left != 0


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task is in its state and position. Positions count the ready tasks before it."""

    task_id: str
    state: TaskState
    reason: str
    rank: int
    now_ms: int
    visible_at_ms: int | None
    lane: str
    lane_position: int | None
    global_position: int | None
    serving_workers: tuple[ServingWorker, ...]
    queue_control: Control
    type_control: Control
    queue_left: int | None
    """How many tasks the queue's pause and limits allow now; None is unlimited."""
    type_left: int | None
    allowed_now: int | None
    """How many tasks of the type both scopes allow now; None is unlimited."""
    allowed_at_ms: int | None

    @property
    def serving_worker_count(self) -> int:
        """Active workers that may take the task: their circuit for its type does not block them."""
        return sum(each.may_take for each in self.serving_workers)

    @property
    def blocked_worker_count(self) -> int:
        """Active workers that only their circuit blocks: open, or on trial with all trials given."""
        return len(self.serving_workers) - self.serving_worker_count

    @property
    def open_circuit_count(self) -> int:
        return sum(each.open_until_ms is not None for each in self.serving_workers)

    @property
    def blocked_until_ms(self) -> int | None:
        """When the first open circuit goes on trial. The end of running trials cannot be predicted."""
        return min(
            (each.open_until_ms for each in self.serving_workers if each.open_until_ms is not None), default=None
        )

    @property
    def trials_left(self) -> tuple[int, ...]:
        """Trials left of each worker on trial."""
        on_trial = (each for each in self.serving_workers if each.open_until_ms is None)
        return tuple(each.trials_left for each in on_trial if each.trials_left is not None)


class PartitionViews:
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def stats(self) -> Stats:
        (now, live, aged, recent, rules, lane_names, fleet, dead_workers, dead, outbox, due, ready, *more) = accepted(
            await self._scripts.call("stats")
        )
        totals, ahead_ms, unreadable, ended = more
        counted, waiting = counts(live), _ages(counts(aged))
        by_type, past = _live_by_type(counted, pairs(lane_names)), pairs(ended)
        return Stats(
            now_ms=number(now),
            total_depth=counted.get("queued", 0),
            by_state={state: counted.get(state, 0) for state in LIVE_STATES},
            by_type={task_type: count for (task_type, state), count in by_type.items() if state == TaskState.QUEUED},
            by_priority=_by_priority(waiting),
            recent=_recent(counts(recent), number(now)),
            workers=_workers(fleet, number(dead_workers)),
            controls=parse_controls(pairs(rules)),
            dead_letter_count=number(dead),
            outbox_length=number(outbox),
            due_count=number(due),
            ready_count=number(ready),
            ages=waiting,
            totals=counts(totals),
            clock_ahead_ms=number(ahead_ms),
            unreadable_count=number(unreadable),
            counted=by_type | ended_counts(past),
            counted_since_ms=counted_since_ms(past),
        )

    async def backlog(self, task_types: Sequence[str] = (), capabilities: Sequence[str] = ()) -> Backlog:
        """Returns the backlog of the queue, or of the lanes that a worker with this declaration would serve.

        Without `task_types`, a worker for any type.
        """
        is_narrowed = bool(task_types or capabilities)
        profile = worker_profile(task_types or None, capabilities) if is_narrowed else ""
        ready, held = accepted(await self._scripts.call("backlog", profile=profile))
        return Backlog(number(ready), number(held))

    async def explain(self, task_id: str) -> Explanation:
        reply = await self._scripts.call("explain", task_id=task_id)
        refused_for = (task_id,) if reply.word in ("TASK_NOT_FOUND", "WRONG_STATE") else ()
        now, packed, score, place, global_place, lane, fleet, whole, own = accepted(reply, *refused_for)
        record, placed, signature = parse_record(packed), instant(score), text(lane)
        allowances = [_allowance(whole), _allowance(own)]
        return Explanation(
            task_id=task_id,
            state=state_named(record.text("state")),
            reason=record.text("reason"),
            rank=record.number("rank"),
            now_ms=number(now),
            visible_at_ms=placed if placed is not None and placed > 0 else None,
            lane=signature,
            lane_position=instant(place),
            global_position=instant(global_place),
            serving_workers=_serving_workers(fleet, signature),
            queue_control=_control(whole),
            type_control=_control(own),
            queue_left=allowances[0][0],
            type_left=allowances[1][0],
            allowed_now=min((left for left, _ in allowances if left is not None), default=None),
            allowed_at_ms=max((at for left, at in allowances if at is not None and left == 0), default=None),
        )

    async def unreadable(self, limit: int = 1_000) -> list[str]:
        """Returns ids of live tasks set aside because this version cannot read them."""
        return [text(each) for each in accepted(await self._scripts.call("list_unreadable", most=limit))[0]]

    async def count_ahead(self, task_id: str, rank: int, signature: str) -> tuple[int, int]:
        """Returns how many ready tasks of this partition go before a task of another one: in its lane, and in all."""
        in_lane, in_all = accepted(
            await self._scripts.call("count_ahead", task_id=task_id, rank=rank, signature=signature)
        )
        return number(in_lane), number(in_all)

    async def trials(self, task_type: str, worker_ids: Sequence[str]) -> list[tuple[int | None, int]]:
        """Returns for each worker until when its circuit for the type is open here, and how many trials it got here."""
        flat = accepted(await self._scripts.call("count_trials", task_type=task_type, rows=worker_ids))
        return [(instant(flat[i]), number(flat[i + 1])) for i in range(0, len(flat), 2)]

    async def snapshot(self) -> Snapshot:
        """Returns the data of the invariants at one instant. Costs a read of every task: for tests and the doctor."""
        reply = await self._scripts.call("snapshot", is_bulk=True)
        now, queue, records, defined, heads, live, ages, lane_names, dead, held, set_aside = accepted(reply)
        found = {text(records[i]): readable_record(records[i + 1]) for i in range(0, len(records), 2)}
        return Snapshot(
            now_ms=number(now),
            queue={task_id: int(float(score)) for task_id, score in pairs(queue).items()},
            records={task_id: record.values for task_id, record in found.items() if record is not None},
            unreadable=frozenset(task_id for task_id, record in found.items() if record is None),
            set_aside=frozenset(map(text, set_aside)),
            defined=frozenset(text(task_id) for task_id in defined),
            heads={int(lane): int(float(rank)) for lane, rank in pairs(heads).items()},
            counts=counts(live),
            ages=counts(ages),
            lane_names={int(lane): name for lane, name in pairs(lane_names).items() if lane.isdecimal()},
            dead=frozenset(text(task_id) for task_id in dead),
            held={text(held[i]): frozenset(map(text, held[i + 1])) for i in range(0, len(held), 2)},
        )


def _live_by_type(counted: dict[str, int], lane_names: dict[str, str]) -> dict[tuple[str, str], int]:
    totals: Counter[tuple[str, str]] = Counter()
    for field, count in counted.items():
        lane, _, state = field.rpartition(":")
        if lane:
            totals[(task_type_of(lane_names.get(lane, "")), state)] += count
    return dict(totals)


def _ages(buckets: dict[str, int]) -> dict[tuple[str, int], int]:
    ages: dict[tuple[str, int], int] = {}
    for bucket, count in buckets.items():
        priority, _, minute = bucket.rpartition(":")
        if (minutes := number_or_none(minute, bucket)) is not None:
            ages[priority, minutes * MINUTE_MS] = count
    return ages


def _by_priority(ages: dict[tuple[str, int], int]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for (priority, _), count in ages.items():
        totals[priority] += count
    return dict(totals)


def _recent(fields: dict[str, int], now_ms: int) -> dict[str, int]:
    totals: dict[str, int] = {}
    for field, value in fields.items():
        name, _, bucket = field.rpartition(":")
        span = MINUTE_MS if name in ("completed", "failed", "duration_ms") else HOUR_MS
        began_ms = number_or_none(bucket, field)
        if began_ms is not None and began_ms > now_ms - span:
            totals[name] = totals.get(name, 0) + value
    return totals


def _workers(fleet: Sequence[Any], dead: int) -> WorkerCounts:
    rows = [tuple(map(lossy_text, row)) for row in fleet]
    statuses = [status for status, *_ in rows]
    circuits_by_worker = [parse_circuits(circuits) for *_, circuits in rows]
    return WorkerCounts(
        active=statuses.count("active"),
        draining=statuses.count("draining"),
        unhealthy=statuses.count("unhealthy"),
        dead=dead,
        total_capacity=sum(number_or_none(capacity, "capacity") or 0 for _, capacity, _, _ in rows),
        used_capacity=sum(int(held) for _, _, held, _ in rows),
        open_circuits=sum(bool(each) for each in circuits_by_worker),
        open_circuits_by_type=dict(Counter(circuit.task_type for each in circuits_by_worker for circuit in each)),
    )


def _serving_workers(fleet: Sequence[Any], signature: str) -> tuple[ServingWorker, ...]:
    return tuple(
        ServingWorker(worker_id=text(worker_id), open_until_ms=instant(open_until), trials_left=instant(left))
        for worker_id, status, profile, open_until, left in fleet
        if text(status) == "active" and serves(text(profile), signature)
    )


def _control(parts: Any) -> Control:
    scope, pause, rate, most, _, _ = map(text, parts)
    return parse_control(scope, pause, rate, most)


def _allowance(parts: Any) -> tuple[int | None, int | None]:
    return instant(parts[4]), instant(parts[5])
