"""The invariants of the store, checked on a snapshot. Pure.

Used after every step of the model test and by the doctor. The check finds a broken invariant, not the script that
broke it.
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
    """Tasks whose records cannot be read."""
    set_aside: frozenset[str] = frozenset()
    """Live tasks that were taken out of the sorted set because their record could not be read."""


def violations(snapshot: Snapshot) -> list[str]:
    """Returns a description of every broken invariant."""
    return [
        *_membership(snapshot),
        *_scores(snapshot),
        *_heads(snapshot),
        *_counters(snapshot),
        *_holders(snapshot),
    ]


def _membership(snapshot: Snapshot) -> Iterator[str]:
    """Each live task is in the set, no terminal one is; the dead-letter list holds exactly the dead letters."""
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
    """Old dead letters leave the list before their record leaves the store."""
    return now_ms - int(record["ended_ms"]) >= LISTED_MS


def _scores(snapshot: Snapshot) -> Iterator[str]:
    """A ready task's score is its lane and rank; a held task is hidden; a hidden task's record has the same instant."""
    for task_id, score in snapshot.queue.items():
        record = snapshot.records.get(task_id)
        if record is None:
            continue
        if score < 0 and record["state"] != TaskState.QUEUED:
            yield f"{task_id} is {record['state']} and ready at the same time"
        if score < 0 and (lane_of(score), rank_of(score)) != (int(record["lane"]), int(record["rank"])):
            yield f"{task_id} has score {score}, its record has lane {record['lane']} rank {record['rank']}"
        if score >= 0 and record["visible_ms"] != str(score):
            yield f"{task_id} is hidden until {score}, its record has {record['visible_ms'] or 'not hidden'}"


def _heads(snapshot: Snapshot) -> Iterator[str]:
    """`heads` holds every lane with a ready task, with a bound no worse than its best rank."""
    best: dict[int, int] = {}
    for score in snapshot.queue.values():
        if score < 0:
            best[lane_of(score)] = min(best.get(lane_of(score), rank_of(score)), rank_of(score))
    for lane, rank in best.items():
        if lane not in snapshot.heads or snapshot.heads[lane] > rank:
            yield f"lane {lane} has rank {rank} ready, its head is {snapshot.heads.get(lane, 'empty')}"


def _counters(snapshot: Snapshot) -> Iterator[str]:
    """Counts by state, by lane and state, and by age equal a recount; skipped while a record is unreadable."""
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
    """Every assigned or executing task is held by its worker, and workers hold no other task."""
    expected: dict[str, set[str]] = {}
    for task_id, record in snapshot.records.items():
        if record["state"] in HELD:
            expected.setdefault(record["worker"], set()).add(task_id)
    for worker in expected.keys() | snapshot.held.keys():
        wanted = expected.get(worker, set())
        held = set(snapshot.held.get(worker, frozenset())) - snapshot.unreadable
        if wanted != held:
            yield f"worker {worker} holds {held}, by the records {wanted}"
