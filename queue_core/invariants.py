"""What must be true of the store at every instant, and a function that says what is not. Pure.

It is used after every step of the model test and by the doctor. It promises to find a broken invariant, not to
say which script broke it.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec

from tideq.queue_core.score import lane_of, rank_of
from tideq.queue_core.settings import Retention
from tideq.queue_core.states import TaskState
from tideq.queue_core.transitions import LIVE

LISTED_MS = Retention().dead_letter_ttl_ms
HELD = (TaskState.ASSIGNED, TaskState.EXECUTING)


class Snapshot(msgspec.Struct, frozen=True):
    now_ms: int
    queue: dict[str, int]
    records: dict[str, dict[str, str]]
    defined: frozenset[str]
    heads: dict[int, int]
    counts: dict[str, int]
    ages: dict[str, int]
    lane_names: dict[int, str]
    dead: frozenset[str]
    held: dict[str, frozenset[str]]
    unreadable: frozenset[str] = frozenset()
    """Tasks whose records cannot be read: nothing else is known of them."""
    set_aside: frozenset[str] = frozenset()
    """Live tasks that left the set because of that, or did so when it was the case."""


def violations(snapshot: Snapshot) -> list[str]:
    """Every broken invariant, in words; empty when all is well."""
    return [
        *_membership(snapshot),
        *_scores(snapshot),
        *_heads(snapshot),
        *_counters(snapshot),
        *_holders(snapshot),
    ]


def _membership(snapshot: Snapshot) -> Iterator[str]:
    """Each live task is in the set, each terminal one is not; dead letters are exactly the dead."""
    for task_id in snapshot.queue.keys() - snapshot.records.keys() - snapshot.unreadable:
        yield f"{task_id} is in the set and has no record"
    for task_id, record in snapshot.records.items():
        is_live = record["state"] in LIVE
        is_placed = task_id in snapshot.queue or (is_live and task_id in snapshot.set_aside)
        if is_live != is_placed:
            yield f"{task_id} is {record['state']} and {'in' if is_placed else 'not in'} the set"
        if task_id not in snapshot.defined:
            yield f"{task_id} has no definition"
        is_dead, is_listed = record["state"] == TaskState.DEAD_LETTER, task_id in snapshot.dead
        if is_dead != is_listed and not (is_dead and _is_past_listing(record, snapshot.now_ms)):
            yield f"{task_id} is {record['state']} and {'among' if is_listed else 'not among'} the dead letters"


def _is_past_listing(record: dict[str, str], now_ms: int) -> bool:
    """Old dead letters leave the list before history lets their record go."""
    return now_ms - int(record["ended_ms"]) >= LISTED_MS


def _scores(snapshot: Snapshot) -> Iterator[str]:
    """A ready task's score is its lane and rank; a held task is hidden; what is hidden knows until when."""
    for task_id, score in snapshot.queue.items():
        record = snapshot.records.get(task_id)
        if record is None:
            continue
        if score < 0 and record["state"] != TaskState.QUEUED:
            yield f"{task_id} is {record['state']} and ready at the same time"
        if score < 0 and (lane_of(score), rank_of(score)) != (int(record["lane"]), int(record["rank"])):
            yield f"{task_id} stands at {score}, its record says lane {record['lane']} rank {record['rank']}"
        if score >= 0 and record["visible_ms"] != str(score):
            yield f"{task_id} is hidden until {score}, its record says {record['visible_ms'] or 'not hidden'}"


def _heads(snapshot: Snapshot) -> Iterator[str]:
    """A lane with a ready task is known to the claims, at a bound no worse than its best rank."""
    best: dict[int, int] = {}
    for score in snapshot.queue.values():
        if score < 0:
            best[lane_of(score)] = min(best.get(lane_of(score), rank_of(score)), rank_of(score))
    for lane, rank in best.items():
        if lane not in snapshot.heads or snapshot.heads[lane] > rank:
            yield f"lane {lane} has rank {rank} ready, its head is known as {snapshot.heads.get(lane, 'empty')}"


def _counters(snapshot: Snapshot) -> Iterator[str]:
    """Counts by state, by lane and state, and by age are what a recount gives, where every record can be read."""
    if snapshot.unreadable:
        return
    counts: Counter[str] = Counter()
    ages: Counter[str] = Counter()
    for record in snapshot.records.values():
        if record["state"] in LIVE:
            counts[record["state"]] += 1
            counts[f"{record['lane']}:{record['state']}"] += 1
        if record["state"] == TaskState.QUEUED:
            ages[record["age_bucket"]] += 1
    if dict(counts) != snapshot.counts:
        yield f"counts are {snapshot.counts}, a recount gives {dict(counts)}"
    if dict(ages) != snapshot.ages:
        yield f"ages are {snapshot.ages}, a recount gives {dict(ages)}"


def _holders(snapshot: Snapshot) -> Iterator[str]:
    """Every assigned or executing task is held by its worker, and nobody holds anything else."""
    expected: dict[str, set[str]] = {}
    for task_id, record in snapshot.records.items():
        if record["state"] in HELD:
            expected.setdefault(record["worker"], set()).add(task_id)
    for worker in expected.keys() | snapshot.held.keys():
        wanted = expected.get(worker, set())
        held = set(snapshot.held.get(worker, frozenset())) - snapshot.unreadable
        if wanted != held:
            yield f"worker {worker} holds {held}, records say {wanted}"
