"""A picture of the sorted set for the dashboard: lanes with their first tasks, hidden tasks by when they return.

The picture is bounded whatever the depth; tasks beyond the bounds are only counted. Also the outcomes of the last hour.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tideq.queue_core.score import BAND_WIDTH
from tideq.queue_core.scripts.replies import accepted, counts, number, number_or_none, pairs, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.states import Reason

MAX_LANES = 24
MAX_READY = 48
"""Tasks listed of one lane."""
MAX_HIDDEN = 96
"""Tasks listed of one zone."""
ZONES_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""Upper ends of the zones of hidden tasks, from now; one more zone has no end."""
OUTCOMES_MS = 10_000
"""Length of one interval of `Outcomes`."""


class PicturedTask(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    lane: int
    score: int
    state: str
    reason: str
    priority: str

    @property
    def rank(self) -> int:
        """The rank of a ready task."""
        return self.score + (self.lane + 1) * BAND_WIDTH


class LaneSlice(msgspec.Struct, frozen=True):
    """A lane or zone: how many tasks it has, and the first of them."""

    count: int
    first: tuple[PicturedTask, ...]


class QueuePicture(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    ready_count: int
    lane_count: int
    lanes: dict[int, LaneSlice]
    """Most urgent lane first."""
    zones: tuple[LaneSlice, ...]
    """One for each of `ZONES_MS`, then the rest."""
    lane_names: dict[int, str]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that ended in one interval of ten seconds."""

    at_ms: int
    completed: int
    failed: int
    duration_ms: int


class QueuePictures:
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def picture(self) -> QueuePicture:
        reply = await self._scripts.call(
            "queue_picture",
            is_bulk=True,
            max_lanes=MAX_LANES,
            most_ready=MAX_READY,
            most_hidden=MAX_HIDDEN,
            rows=list(ZONES_MS),
        )
        now, ready, lane_count, lanes, zones, names = accepted(reply)
        return QueuePicture(
            now_ms=number(now),
            ready_count=number(ready),
            lane_count=number(lane_count),
            lanes={number(lane): _lane_slice(part) for lane, part in lanes},
            zones=tuple(_lane_slice(zone) for zone in zones),
            lane_names={int(lane): name for lane, name in pairs(names).items()},
        )

    async def outcomes(self, since_ms: int) -> tuple[int, list[Outcomes]]:
        """Returns the store's time and the outcomes of the last `since_ms`; intervals without any are left out."""
        now, recent = accepted(await self._scripts.call("outcome_counts"))
        counted: dict[int, dict[str, int]] = {}
        for field, value in counts(recent).items():
            name, _, bucket = field.rpartition(":")
            if (began_ms := number_or_none(bucket, field)) is not None:
                counted.setdefault(began_ms, {})[name] = value
        first = number(now) - since_ms
        return number(now), [
            Outcomes(at_ms=at, **{name: counted[at].get(name, 0) for name in ("completed", "failed", "duration_ms")})
            for at in sorted(counted)
            if at >= first
        ]


def _lane_slice(part: Sequence[Any]) -> LaneSlice:
    count, rows = part
    return LaneSlice(number(count), tuple(_pictured_task(row) for row in rows))


def _pictured_task(row: Sequence[Any]) -> PicturedTask:
    task_id, score, state, reason, age_bucket, lane = map(text, row)
    return PicturedTask(
        task_id=task_id,
        lane=int(lane),
        score=int(score),
        state=state,
        reason=reason or Reason.SUBMITTED,
        priority=age_bucket.rpartition(":")[0],
    )
