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


LOSS_SHARE = 0.1
UNCOUNTED_MS = 1_000
"""Between the last write before a step back of the clock and the first after it; two cores are slow at times."""
LEAP_MS = 4_500
"""A clock that is put right, and yet behind time, may be taken for a store that was silent: this much counts."""


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
    """What the store's time could be at an instant of the harness. Its clock jumps; its time never runs backwards.

    After a step back time goes on from where it was, losing at most a tenth of what passes, until the clock has caught
    up; what passed around the step itself may not count. `earliest` is surely not later than the store's time was,
    `latest` surely not earlier.
    """

    def __init__(self, clock_notes: Sequence[Note]) -> None:
        jumps = [(note["t0"], note["t1"], note["ahead_ms"]) for note in clock_notes]
        self._slowest = [_steps([(place[each], place[2]) for place in jumps], LOSS_SHARE, 0) for each in (0, 1)]
        self._fastest = [_steps([(place[each], place[2]) for place in jumps], 0.0, LEAP_MS) for each in (0, 1)]
        self._steps_back = [began for (began, _, ahead), before in zip(jumps, [0, *(j[2] for j in jumps)], strict=False)
                            if ahead <= before]  # fmt: skip

    def earliest(self, wall: int) -> int:
        lost = UNCOUNTED_MS * bisect.bisect_right(self._steps_back, wall)
        return min(_shown(steps, wall, LOSS_SHARE) for steps in self._slowest) - lost

    def latest(self, wall: int) -> int:
        return max(_shown(steps, wall, 0.0) for steps in self._fastest)


def _steps(jumps: list[tuple[int, int]], loss_share: float, leap_ms: int) -> list[tuple[int, int, float]]:
    """From when, how far the clock is ahead of the harness's, and how far time was ahead of the clock then."""
    steps = [(0, 0, 0.0)]
    for at, ahead_ms in jumps:
        carried_ms = max(_shown(steps, at, loss_share) - at - ahead_ms, 0.0)
        is_put_right = carried_ms > 0 and ahead_ms > steps[-1][1]
        steps.append((at, ahead_ms, carried_ms + leap_ms * is_put_right))
    return steps


def _shown(steps: list[tuple[int, int, float]], wall: int, loss_share: float) -> int:
    at, ahead_ms, carried_ms = steps[bisect.bisect_right(steps, (wall, 1 << 62, 0.0)) - 1]
    return wall + ahead_ms + round(max(carried_ms - loss_share * (wall - at), 0.0))
