"""Checks of who did what to a task, and who was believed: C4, C5, C6, C7."""

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.chaos.evidence import Event, Evidence, StoreTime
from tests.chaos.lost import Losses
from tests.chaos.notes import Note

MARGIN_MS = 50
LOSSES, DELIVERIES, RETRIES = ("worker_lost", "poison"), ("assignment_lapsed", "never_started"), ("error", "timed_out")
CAPS = {"poison": "losses", "never_started": "deliveries", "retries_exhausted": "retries"}


def results(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    yield from _told_results(evidence, losses)
    finished = {(line["task_id"], line["attempt"], line["pid"]) for line in evidence.ledger if line["event"] == "end"}
    for task_id, row in evidence.tasks.items():
        if row.task_type != "work" or row.state != "completed":
            continue
        result = row.result
        if (task_id, result["attempt"], result["pid"]) not in finished or result["mark"] != row.mark:
            yield f"{task_id} has the result {result}, which nobody worked out"
        elif result["attempt"] != evidence.events[task_id][-1].attempt:
            yield f"{task_id} was completed by attempt {evidence.events[task_id][-1].attempt} with {result}"


def _told_results(evidence: Evidence, losses: Losses) -> Iterator[str]:
    """What scripted workers were told: each result that was accepted is the one the task has."""
    accepted: dict[str, dict[str, Any]] = {}
    for note in evidence.of("result"):
        if note["type"] != "ok" or note["said"]["status"] != "completed" or losses.may_lose(note):
            continue
        task_id, result = note["task_id"], note["said"]["result"]
        if task_id in accepted and accepted[task_id] != result:
            yield f"{task_id}: both {accepted[task_id]} and {result} were accepted"
        accepted[task_id] = result
        row = evidence.tasks.get(task_id)
        if row is None or row.state != "completed" or row.result != result:
            yield f"{task_id}: {result} was accepted, the task is {row and (row.state, row.result)}"


def fencing(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    """Each lease is one claim of the task's story; from the next claim on nothing under it is accepted."""
    granted = _granted(evidence)
    settled: set[tuple[str, str]] = set()
    for note in evidence.of("start", "progress", "extend", "result"):
        if note["type"] != "ok":
            continue
        key = (note["task_id"], note["lease"])
        body = str(note["said"])
        if note["f"] == "result" and (f"{key}", body) in settled:
            continue  # a repetition is answered like the first time
        if note["f"] == "result":
            settled.add((f"{key}", body))
        next_claim = _next_claim(evidence, note["task_id"], granted.get(key, 0))
        if next_claim and time.earliest(note["t0"]) > next_claim.at + MARGIN_MS:
            yield f"{note['f']} of {key} was accepted at {note['t0']}, {next_claim.worker} had it since {next_claim.at}"


def _granted(evidence: Evidence) -> dict[tuple[str, str], int]:
    """When each lease that scripted workers heard of was given out."""
    return {
        (task["task_id"], task["lease"]): _instant(task["visible_at"]) - _hidden_ms(task, evidence)
        for note in evidence.of("poll")
        for task in note["tasks"]
    }


def _hidden_ms(task: Note, evidence: Evidence) -> int:
    is_started = task.get("status") == "executing"
    return round(task["timeout_seconds"] * 1000) if is_started else evidence.rules.assignment_ms


def _next_claim(evidence: Evidence, task_id: str, own_at: int) -> Event | None:
    if not own_at:
        return None
    later = (each for each in evidence.events.get(task_id, ()) if each.state == "assigned" and each.at > own_at)
    return next(later, None)


def _instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def leases(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    """A claim lapses and an execution times out when its time is over, or its worker has been silent for too long."""
    contacts = _contacts(evidence)
    for task_id, story in evidence.events.items():
        for before, after in itertools.pairwise(story):
            if before.state == "assigned" and after.reason in DELIVERIES:
                lasted, due = after.at - before.at, evidence.rules.assignment_ms
                if lasted < due and not _was_silent(before, after, contacts, evidence, time):
                    yield f"{task_id} v{after.version}: a claim of {before.worker} lapsed after {lasted} ms"
            if before.state == "executing" and after.reason == "timed_out":
                lasted, due = after.at - before.at, evidence.rules.timeouts_ms[evidence.tasks[task_id].task_type]
                if lasted < due:
                    yield f"{task_id} v{after.version}: an execution timed out after {lasted} ms"
            if after.reason in LOSSES and not _was_silent(before, after, contacts, evidence, time):
                yield f"{task_id} v{after.version}: {before.worker} was given up, and had just been heard of"


def _contacts(evidence: Evidence) -> dict[str, list[Note]]:
    contacts: dict[str, list[Note]] = {}
    for note in evidence.of("poll"):
        if note["type"] == "ok":
            contacts.setdefault(note["worker"], []).append(note)
    return contacts


def _was_silent(
    before: Event, after: Event, contacts: dict[str, list[Note]], evidence: Evidence, time: StoreTime
) -> bool:
    """Of scripted workers it is known when they were last heard; others are believed to have been."""
    heard = [time.earliest(note["t0"]) for note in contacts.get(before.worker or "", ())]
    last = max((at for at in heard if at <= after.at), default=0)
    return after.at - last >= evidence.rules.heartbeat_ms - MARGIN_MS


def counters(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    for task_id, row in evidence.tasks.items():
        story = evidence.events.get(task_id, [])
        counted = _counted(story)
        _, _, attempt, *_ = row.standing
        told = {"retries": row.standing[3], "losses": row.standing[4], "deliveries": row.standing[5]}
        if counted != told or attempt != _attempts(story):
            yield f"{task_id}: {told} and attempt {attempt}, its events give {counted}"
        yield from _caps(task_id, story, told, evidence)
    yield from _ledger(evidence, losses)


def _attempts(story: list[Event]) -> int:
    """Those that were started, and claims that neither lapsed nor were handed back: held still, or called off."""
    states = [event.state for event in story]
    called_off = sum(pair == ("assigned", "cancelled") for pair in itertools.pairwise(states))
    return states.count("executing") + called_off + (states[-1:] == ["assigned"])


def _counted(story: list[Event]) -> dict[str, int]:
    """Since it was last revived, which begins all budgets anew."""
    last = max((place for place, event in enumerate(story) if event.reason in ("retried", "replayed")), default=0)
    seen = Counter(event.reason for event in story[last:])
    return {
        "retries": sum(seen[reason] for reason in RETRIES),
        "losses": sum(seen[reason] for reason in LOSSES),
        "deliveries": sum(seen[reason] for reason in DELIVERIES),
    }


def _caps(task_id: str, story: list[Event], told: dict[str, int], evidence: Evidence) -> Iterator[str]:
    """A dead letter has spent a budget, and who has spent one is a dead letter."""
    limits = {"losses": evidence.rules.max_losses, "deliveries": evidence.rules.max_deliveries}
    for name, limit in limits.items():
        reason = story[-1].reason if story else ""
        if (told[name] >= limit) != (CAPS.get(reason) == name):
            yield f"{task_id}: {told[name]} of {limit} {name}, and its last reason is {reason}"


def _ledger(evidence: Evidence, losses: Losses) -> Iterator[str]:
    """No handler began what had not been started in its worker's name, and none began the same attempt twice."""
    started = {(event.task_id, event.attempt) for event in evidence.all_events() if event.state == "executing"}
    begun = Counter((line["task_id"], line["attempt"]) for line in evidence.ledger if line["event"] == "start")
    at = {(line["task_id"], line["attempt"]): line["at"] for line in evidence.ledger}
    for key, count in begun.items():
        may_be_lost = losses.may_lose({"t0": at[key] - 5_000, "t1": at[key]})
        if count > 1 and not len(losses):
            yield f"attempt {key} was begun {count} times"
        if key not in started and not may_be_lost:
            yield f"attempt {key} was begun, and no event says it was started"
