"""Checks of what became of tasks: C1, C2, C3, C8, C9, C10."""

from collections import Counter
from collections.abc import Iterator

from tests.chaos.evidence import Evidence, StoreTime
from tests.chaos.lost import Losses
from tests.history.checker import MOVES


def ends(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    for note in evidence.of("acknowledged"):
        may_be_lost = note["durability"] != "history" and losses.may_lose(note)
        for mark, task_id in zip(note["marks"], note["ids"], strict=True):
            row = evidence.tasks.get(task_id)
            if row is None and not may_be_lost:
                yield f"lost: {task_id} ({mark}), accepted at {note['t1']} as safe in {note['durability']}"
            elif row is not None and row.is_live:
                yield f"not ended: {task_id} ({mark}) is {row.state}"


def unheard(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    outcomes: dict[str, set[str]] = {}
    for note in evidence.of("submit"):
        for mark in note["marks"]:
            outcomes.setdefault(mark, set()).add(note["type"])
    for task_id, row in evidence.tasks.items():
        if row.mark not in outcomes:
            yield f"{task_id} ({row.mark}) was never handed in"
        elif outcomes[row.mark] == {"fail"}:
            yield f"{task_id} ({row.mark}) was refused, and is there"
    for line in evidence.ledger:
        if line["mark"] not in outcomes or outcomes[line["mark"]] == {"fail"}:
            yield f"{line['task_id']} ({line['mark']}) ran, and nobody handed it in"


def keys(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    for mark, count in Counter(row.mark for row in evidence.tasks.values()).items():
        if count > 1:
            yield f"{count} tasks of {mark}"
    told: dict[str, set[str]] = {}
    for note in evidence.of("acknowledged"):
        for mark, task_id in zip(note["marks"], note["ids"], strict=True):
            if not losses.may_lose(note):
                told.setdefault(mark, set()).add(task_id)
    for mark, ids in told.items():
        if len(ids) > 1:
            yield f"{mark} was told to be {sorted(ids)}"
    for note in evidence.of("submit_other"):
        if note["type"] == "ok" and told.get(note["marks"][0]):
            yield f"the key of {note['marks'][0]} was accepted with another body"


def paths(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    epochs = {event.epoch for event in evidence.all_events()}
    if len(epochs) > len(losses) + 1:
        yield f"{len(epochs)} epochs after {len(losses)} wipes: a store that was not wiped had lost something"
    if evidence.parked:
        yield f"{evidence.parked} events are parked"
    for task_id, story in evidence.events.items():
        state, version, at, epoch = "", 0, 0, 0
        for event in story:
            if event.version != version + 1:
                yield f"{task_id}: version {event.version} follows {version}"
            if event.state not in MOVES[state]:
                yield f"{task_id}: {event.state} (v{event.version}) follows {state or 'nothing'}"
            if event.at < at or event.epoch < epoch:
                yield f"{task_id}: v{event.version} goes back in time"
            state, version, at, epoch = event.state, event.version, event.at, event.epoch


def agreement(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    look = evidence.look
    if look is None:
        return
    for task_id, standing in look.records.items():
        row = evidence.tasks.get(task_id)
        if row is None or row.standing != standing:
            yield f"{task_id} is {standing} in the store, {row and row.standing} in history"
    for task_id, row in evidence.tasks.items():
        story = evidence.events.get(task_id)
        if not story or (story[-1].state, story[-1].version) != (row.state, row.version):
            yield f"{task_id} is {row.state} v{row.version}, its last event {story and story[-1]}"
        if row.is_live and task_id not in look.records:
            yield f"{task_id} is {row.state} in history, and the store does not know it"
        if (row.state == "dead_letter") != (task_id in evidence.dead):
            yield f"{task_id} is {row.state}, and {'among' if task_id in evidence.dead else 'not among'} the dead"
    for task_id in evidence.events.keys() - evidence.tasks.keys():
        yield f"{task_id} has events and no row"


def reads(evidence: Evidence, time: StoreTime, losses: Losses) -> Iterator[str]:
    told = {task_id: note for note in evidence.of("acknowledged") for task_id in note["ids"]}
    for note in evidence.of("read", "cancel", "retry", "last_read"):
        task_id = note["task_id"]
        if (
            note["status"] == 404
            and task_id in told
            and not (losses.may_lose(told[task_id]) and told[task_id]["durability"] != "history")
        ):
            yield f"{note['f']} of {task_id} found nothing at {note['t1']}"
        if note["f"] == "last_read" and note["type"] == "ok" and task_id in evidence.tasks:
            row = evidence.tasks[task_id]
            if note["told"] != [row.state, row.version]:
                yield f"{task_id} reads as {note['told']}, history has {row.state} v{row.version}"
