"""All that the checker judges by: notes, ledgers, history's tables and a last look at the store. None of it is ours."""

import bisect
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.chaos.lookout import LIVE, RANK, Look, Standing, standing_of, texts_of
from tests.chaos.notes import Note
from tests.history.checker import connected

EVENTS = """
SELECT task_id::text, epoch, version, (extract(epoch FROM at) * 1000)::bigint, state, reason, attempt, worker_id
FROM task_events ORDER BY task_id, epoch, version
"""
TASKS = "SELECT task_id::text, state, version, task_type, priority, parameters, result, record FROM tasks"


class Event(NamedTuple):
    task_id: str
    epoch: int
    version: int
    at: int
    state: str
    reason: str
    attempt: int
    worker: str | None


class Row(NamedTuple):
    state: str
    version: int
    task_type: str
    priority: str
    mark: str
    result: Any
    standing: Standing
    rank: int

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True)
class Rules:
    """What the service was told, in milliseconds and counts."""

    assignment_ms: int
    heartbeat_ms: int
    retry_base_ms: int
    max_losses: int
    max_deliveries: int
    timeouts_ms: dict[str, int]
    offsets_ms: dict[str, int]


@dataclass
class Evidence:
    rules: Rules
    notes: Sequence[Note]
    ledger: Sequence[Note] = ()
    events: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    tasks: dict[str, Row] = field(default_factory=dict[str, Row])
    dead: set[str] = field(default_factory=set[str])
    parked: int = 0
    look: Look | None = None
    ends: dict[str, Any] = field(default_factory=dict[str, Any])
    """Figures from before the load and after it, and what the service says at the end."""

    def of(self, *names: str) -> list[Note]:
        return [note for note in self.notes if note["f"] in names]

    def all_events(self) -> list[Event]:
        return [event for story in self.events.values() for event in story]


def read_history(evidence: Evidence, database_url: str, schema: str) -> None:
    with connected(database_url, schema) as connection:
        for row in connection.execute(EVENTS).fetchall():
            evidence.events.setdefault(row[0], []).append(Event(*row))
        for task_id, state, version, kind, priority, parameters, result, record in connection.execute(TASKS).fetchall():
            mark = json.loads(parameters).get("mark", "")
            told = None if result is None else json.loads(result)
            rank = int(texts_of(record)[RANK])
            row = Row(state, version, kind, priority, mark, told, standing_of(record), rank)
            evidence.tasks[task_id] = row
        evidence.dead = {row[0] for row in connection.execute("SELECT task_id::text FROM dead_letter_tasks")}
        (evidence.parked,) = connection.execute("SELECT count(*) FROM parked_events").fetchone() or (0,)


class StoreTime:
    """What the store's clock could say at an instant of the harness: it jumps, and never runs backwards.

    `earliest` is surely not later than it said, `latest` surely not earlier.
    """

    def __init__(self, clock_notes: Sequence[Note]) -> None:
        self._after = self._steps([(note["t1"], note["ahead_ms"]) for note in clock_notes])
        self._before = self._steps([(note["t0"], note["ahead_ms"]) for note in clock_notes])

    @staticmethod
    def _steps(jumps: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """From when, how far ahead, and the latest instant shown before."""
        steps = [(0, 0, 0)]
        for at, ahead_ms in jumps:
            _, was_ahead, shown = steps[-1]
            steps.append((at, ahead_ms, max(shown, at + was_ahead)))
        return steps

    @staticmethod
    def _shown(steps: list[tuple[int, int, int]], wall: int) -> int:
        _, ahead_ms, shown = steps[bisect.bisect_right(steps, (wall, 1 << 62, 0)) - 1]
        return max(wall + ahead_ms, shown)

    def earliest(self, wall: int) -> int:
        return min(self._shown(self._after, wall), self._shown(self._before, wall))

    def latest(self, wall: int) -> int:
        return max(self._shown(self._after, wall), self._shown(self._before, wall))
