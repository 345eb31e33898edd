"""Compares history with what happened. It shares no code with what writes history, and imports none of it.

What happened comes from `witness.py`; what history says is read with plain SQL.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from psycopg import sql

from tests.history.witness import Event, Happening, Ledger, stories_of

MOVES = {
    "": {"queued"},
    "queued": {"assigned", "cancelled"},
    "assigned": {"executing", "queued", "cancelled", "dead_letter"},
    "executing": {"completed", "failed", "dead_letter", "queued", "cancelled"},
    "completed": set[str](),
    "failed": {"queued"},
    "dead_letter": {"queued"},
    "cancelled": {"queued"},
}
SHOWN = 5


class History:
    """Everything the tables say."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.events = [Event(*row) for row in connection.execute(EVENTS).fetchall()]
        self.tasks = {row[0]: row[1:] for row in connection.execute(TASKS).fetchall()}
        self.dead = {row[0] for row in connection.execute("SELECT task_id::text FROM dead_letter_tasks")}
        self.parked = [row[0] for row in connection.execute("SELECT task_id FROM parked_events ORDER BY parked_id")]


def connected(database_url: str, schema: str) -> psycopg.Connection[Any]:
    connection = psycopg.connect(database_url)
    connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
    connection.commit()
    return connection


def read_history(database_url: str, schema: str) -> History:
    with connected(database_url, schema) as connection:
        return History(connection)


EVENTS = """
SELECT task_id::text, epoch, version, (extract(epoch FROM at) * 1000)::bigint, state, reason, attempt, worker_id, error
FROM task_events ORDER BY task_id, epoch, version
"""
TASKS = """
SELECT task_id::text, epoch, version, state, reason, worker_id, (extract(epoch FROM created_at) * 1000)::bigint,
    (extract(epoch FROM ended_at) * 1000)::bigint, parameters, result, error
FROM tasks
"""


def differences(history: History, happenings: Iterable[Happening], ledger: Ledger) -> list[str]:
    """Everything history says that did not happen, and all that happened and history does not say."""
    stories = stories_of(happenings)
    return [
        *_wrong_events(history, stories),
        *_wrong_paths(history),
        *_wrong_tasks(history, stories, ledger),
        *_wrong_dead_letters(history, stories),
        *_broken_promises(history, ledger),
    ]


def _wrong_events(history: History, stories: dict[str, list[Happening]]) -> Iterator[str]:
    written = Counter(history.events)
    happened = Counter(happening.event for story in stories.values() for happening in story)
    for word, found in (("missing", happened - written), ("invented", written - happened)):
        if found:
            yield f"{found.total()} events {word}: {list(found)[:SHOWN]}"


def _wrong_paths(history: History) -> Iterator[str]:
    """Versions count on without a gap, a new epoch goes on from one that history had, and every step is a legal one."""
    before: Event | None = None
    for event in history.events:
        if before is None or before.task_id != event.task_id:
            state, version = "", 0
        else:
            state, version = before.state, before.version
        if event.version != version + 1:
            yield f"{event.task_id}: version {event.version} of epoch {event.epoch} follows {version}"
        if event.state not in MOVES[state]:
            yield f"{event.task_id}: {event.state} (v{event.version}) follows {state or 'nothing'}"
        before = event


def _wrong_tasks(history: History, stories: dict[str, list[Happening]], ledger: Ledger) -> Iterator[str]:
    if unequal := history.tasks.keys() ^ stories.keys():
        yield f"{len(unequal)} tasks on one side only: {sorted(unequal)[:SHOWN]}"
    for task_id in history.tasks.keys() & stories.keys():
        expected = _latest(stories[task_id], ledger.parameters.get(task_id, b"").decode())
        if history.tasks[task_id] != expected:
            yield f"{task_id} is {history.tasks[task_id]}, should be {expected}"


def _latest(story: list[Happening], parameters: str) -> tuple[Any, ...]:
    last = story[-1]
    errors = [happening.event.error for happening in story if happening.event.error is not None]
    return (
        last.event.epoch,
        last.event.version,
        last.event.state,
        last.event.reason,
        last.event.worker,
        story[0].event.at_ms,
        last.ended_ms,
        parameters,
        last.result,
        errors[-1] if errors else None,
    )


def _wrong_dead_letters(history: History, stories: dict[str, list[Happening]]) -> Iterator[str]:
    dead = {task_id for task_id, story in stories.items() if story[-1].event.state == "dead_letter"}
    if wrong := dead ^ history.dead:
        yield f"{len(wrong)} dead letters on one side only: {sorted(wrong)[:SHOWN]}"


def _broken_promises(history: History, ledger: Ledger) -> Iterator[str]:
    """What callers were told, in the tables."""
    if lost := ledger.known - history.tasks.keys():
        yield f"{len(lost)} acknowledged submissions are not in history: {sorted(lost)[:SHOWN]}"
    if unheard := history.tasks.keys() - ledger.known:
        yield f"{len(unheard)} tasks in history that nobody submitted: {sorted(unheard)[:SHOWN]}"
    told: dict[str, list[str]] = {}
    for event in history.events:
        if event.error is not None and event.reason not in ("timed_out", "worker_lost", "poison"):
            told.setdefault(event.task_id, []).append(event.error)
    for task_id in ledger.known & history.tasks.keys():
        state, result = history.tasks[task_id][2], history.tasks[task_id][8]
        if task_id in ledger.endings and state != ledger.endings[task_id]:
            yield f"{task_id} is {state}; its caller was told {ledger.endings[task_id]}"
        if task_id in ledger.results and result != ledger.results[task_id].decode():
            yield f"{task_id} has the result {result}; its worker sent {ledger.results[task_id]!r}"
        if sorted(told.get(task_id, [])) != sorted(error.decode() for error in ledger.errors.get(task_id, [])):
            yield f"{task_id} has the errors {told.get(task_id)}; its workers sent {ledger.errors.get(task_id)}"
