"""Checks of how the service behaves: C11 to C17, and whether the run shows anything at all."""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator

from tests.chaos.evidence import Event, Evidence, StoreTime
from tests.chaos.lost import Losses

SEEN_MS = 250
MAX_OUT_OF_ORDER = 0.001
MAX_UNKNOWN = 0.2
IDLE_MS, CALM_MS = 1_900, 6_000
MORE_CONNECTIONS, MAX_OUTBOX = 12, 1_500
READY_REASONS = ("submitted", "released", "assignment_lapsed", "retried", "replayed")
BACKOFF_SHARE = 0.8
KILLED = -9
COMING_BACK_MS = 9_000
SHAKING = (
    *("postgres_down", "valkey_restart", "valkey_wiped", "failed_over", "valkey_frozen"),
    *("memory_full", "disk_full", "killed_while_slow"),
    *("history_read_only", "history_timeouts", "history_forbidden", "store_forbidden"),
)


def order(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    """No claim passes over a task of the same kind that had stood before it, to be seen, for long enough.

    And where a task stands is settled when it is handed in or revived: nothing it goes through changes that.
    """
    for task_id, row in evidence.tasks.items():
        rank = _ranks(evidence, task_id, row.priority)[-1]
        if row.rank != rank:
            yield f"{task_id} stands at {row.rank}, and was handed in or revived for {rank}"
    claims, wrong = 0, list[str]()
    for kind in {row.task_type for row in evidence.tasks.values()}:
        found = list(_claims(evidence, kind))
        claims += len(found)
        wrong += [problem for problem in found if problem]
    if len(wrong) > MAX_OUT_OF_ORDER * claims:
        yield from wrong


def instants(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    """Nothing was done later, by the store's time, than it was told to be done."""
    for note in evidence.of("acknowledged"):
        latest = time.latest(note["t1"])
        for task_id in note["ids"]:
            story = evidence.events.get(task_id)
            if story and story[0].at > latest:
                yield f"{task_id} was handed in at {story[0].at}, and its producer heard of it by {latest}"


def _claims(evidence: Evidence, kind: str) -> Iterator[str]:
    """A text a claim, empty where it took the best. At one instant all that is taken leaves before anyone is judged."""
    stands: list[tuple[int, int, str, int]] = []
    taken: list[tuple[int, int, str, Event]] = []
    for task_id, row in evidence.tasks.items():
        if row.task_type == kind and task_id not in _spoiled(evidence):
            _spread(evidence, task_id, row.priority, stands, taken)
    stands.sort()
    waiting: list[tuple[int, str, int]] = []
    place = 0
    for at, rank, task_id, event in sorted(taken, key=lambda each: each[:3]):
        while place < len(stands) and stands[place][0] < at:
            _, standing_rank, other, gone_at = stands[place]
            heapq.heappush(waiting, (standing_rank, other, gone_at))
            place += 1
        while waiting and waiting[0][2] <= at:
            heapq.heappop(waiting)
        is_best = not waiting or waiting[0][0] >= rank
        yield "" if is_best else f"{task_id} (rank {rank}) was claimed at {at} before {waiting[0]} by {event.worker}"


def _spread(evidence: Evidence, task_id: str, priority: str, stands: list[tuple[int, int, str, int]],
            taken: list[tuple[int, int, str, Event]]) -> None:  # fmt: skip
    """When it stood ready for everyone to see, and when it was claimed."""
    story = evidence.events.get(task_id, [])
    delay_ms = _delays(evidence).get(evidence.tasks[task_id].mark, 0)
    ranks = _ranks(evidence, task_id, priority)
    for rank, (before, after) in zip(ranks, itertools.pairwise(story), strict=False):
        if before.state == "queued" and before.reason in READY_REASONS and not (delay_ms and before.version == 1):
            stands.append((before.at + SEEN_MS, rank, task_id, after.at))
        if after.state == "assigned":
            taken.append((after.at, rank, task_id, after))


def _ranks(evidence: Evidence, task_id: str, priority: str) -> list[int]:
    """After each event: instants and offsets, as the specification adds them."""
    offset, ranks = evidence.rules.offsets_ms[priority], list[int]()
    delay_ms = _delays(evidence).get(evidence.tasks[task_id].mark, 0)
    for event in evidence.events.get(task_id, ()):
        if event.reason in ("retried", "replayed"):
            ranks.append(event.at + offset)
        else:
            ranks.append(ranks[-1] if ranks else event.at + delay_ms + offset)
    return ranks or [0]


def _delays(evidence: Evidence) -> dict[str, int]:
    """By mark; worked out once for each evidence."""
    known = evidence.ends.get("delays")
    if known is None:
        known = {mark: delay for note in evidence.of("submit") for mark, delay in note["delays"].items()}
        evidence.ends["delays"] = known
    return known


def _spoiled(evidence: Evidence) -> set[str]:
    """Tasks that could not be read for a while: nobody could take them in their turn."""
    known = evidence.ends.get("spoiled")
    if known is None:
        known = {note["task_id"] for note in evidence.of("spoiled")}
        evidence.ends["spoiled"] = known
    return known


def late(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    """What a killed worker was executing comes back when its heartbeats are missed, but for troubled stores."""
    kills = [note for note in evidence.of("fault") if note["name"] == "kill" and note["target"].startswith("worker")]
    shaken = [(note["t0"], note["t1"]) for note in evidence.of("fault") if note["name"] in SHAKING]
    shaken += [(note["t0"], note["t1"] + COMING_BACK_MS) for note in evidence.of("clock")]
    for before, after in _pairs(evidence):
        if before.state != "executing" or after.reason not in ("timed_out", "worker_lost", "poison"):
            continue
        for kill in (kill for kill in kills if (before.worker or "").startswith(kill["target"] + "-")):
            died_at = time.latest(kill["t0"])
            due_at = died_at + evidence.rules.heartbeat_ms + COMING_BACK_MS
            if not before.at < died_at < after.at or after.at <= due_at:
                continue
            if not any(began < kill["t1"] + COMING_BACK_MS and ended > kill["t0"] - CALM_MS for began, ended in shaken):
                yield f"{after.task_id} v{after.version}: came back {after.at - died_at} ms after {before.worker} died"


def _pairs(evidence: Evidence) -> Iterator[tuple[Event, Event]]:
    for story in evidence.events.values():
        yield from itertools.pairwise(story)


def early(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    delays, least_backoff = _delays(evidence), evidence.rules.retry_base_ms * BACKOFF_SHARE
    for task_id, story in evidence.events.items():
        delay_ms = delays.get(evidence.tasks[task_id].mark, 0) if task_id in evidence.tasks else 0
        for before, after in itertools.pairwise(story):
            waited = after.at - before.at
            if before.version == 1 and after.state == "assigned" and waited < delay_ms:
                yield f"{task_id} was claimed after {waited} of {delay_ms} ms"
            if before.reason == "error" and after.state == "assigned" and waited < least_backoff:
                yield f"{task_id} v{after.version} was tried again after {waited} ms"


def refusals(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    """That they had no effect is C2."""
    for note in evidence.notes:
        status = note.get("status")
        if status in (429, 503) and not note.get("retry_after"):
            yield f"{note['f']} at {note['t1']}: {status} {note.get('problem')} without Retry-After"
        if status == 500:
            yield f"{note['f']} at {note['t1']}: 500"


def figures(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    stats = evidence.ends.get("stats")
    if stats is None:
        return
    live = Counter(row.state for row in evidence.tasks.values() if row.is_live)
    for state, count in stats["by_state"].items():
        if count != live[state]:
            yield f"the service counts {count} {state}, there are {live[state]}"
    ended = Counter(f"{row.task_type} {row.state}" for row in evidence.tasks.values() if not row.is_live)
    for kind in sorted(ended.keys() | stats["ended"].keys()):
        if stats["ended"].get(kind, 0) != ended[kind]:
            yield f"the service counts {stats['ended'].get(kind, 0)} {kind}, there are {ended[kind]}"
    if stats["dead_letters"] != len(evidence.dead):
        yield f"the service counts {stats['dead_letters']} dead letters, there are {len(evidence.dead)}"


def soundness(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    for note in evidence.of("look"):
        yield from (f"at {note['t1']}: {problem}" for problem in note["problems"])


def idleness(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    """A poll that waited its whole time in calm weather and got nothing, while a task for it stood ready all along."""
    troubles = [(note["t0"], note["t1"]) for note in evidence.of("fault")]
    ready = _ready_spans(evidence, "hand")
    for note in evidence.of("poll"):
        if note["type"] != "ok" or note["tasks"] or note["t1"] - note["t0"] < IDLE_MS:
            continue
        if any(began < note["t1"] and note["t0"] < ended + CALM_MS for began, ended in troubles):
            continue
        since, until = time.latest(note["t0"]), time.latest(note["t1"])
        if waiting := [span for span in ready if span[0] < since and span[1] > until]:
            yield f"{note['worker']} waited from {note['t0']} to {note['t1']} beside {waiting[0]}"


def _ready_spans(evidence: Evidence, kind: str) -> list[tuple[int, int, str]]:
    stands: list[tuple[int, int, str, int]] = []
    for task_id, row in evidence.tasks.items():
        if row.task_type == kind and task_id not in _spoiled(evidence):
            _spread(evidence, task_id, row.priority, stands, [])
    return [(seen_at - SEEN_MS, gone_at, task_id) for seen_at, _, task_id, gone_at in stands]


def leaks(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    before, after = evidence.ends.get("before"), evidence.ends.get("after")
    if before is None or after is None:
        return
    if after["connections"] > before["connections"] + MORE_CONNECTIONS:
        yield f"{after['connections']} connections to the store, {before['connections']} at the beginning"
    if after["sessions"] > before["sessions"] + MORE_CONNECTIONS:
        yield f"{after['sessions']} sessions of PostgreSQL, {before['sessions']} at the beginning"
    if after["outbox"] > MAX_OUTBOX:
        yield f"{after['outbox']} entries are left in the outbox"
    if not evidence.ends.get("is_drained", True):
        yield "the backlog was not drained"
    if not after["is_caught_up"]:
        yield "history did not catch up"


def survival(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    """No process ends unless it is killed, whatever its stores do: a worker may be killed by what it runs."""
    for note in evidence.of("ended"):
        if note["code"] != KILLED:
            yield f"{note['name']} (pid {note['pid']}) ended by itself at {note['t1']} with code {note['code']}"


def worth(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    calls = Counter(note["type"] for note in evidence.notes if "type" in note)
    if calls["info"] > MAX_UNKNOWN * calls.total():
        yield f"of {calls.total()} calls {calls['info']} have an unknown outcome"
    if not any(row.state == "completed" for row in evidence.tasks.values()):
        yield "nothing was completed"
