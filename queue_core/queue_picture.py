"""The one sorted set as people look at it: lanes with their first tasks, and the hidden ones by when they return.

Bounded whatever the depth: what is cut off is counted. Also how the last hour went, as the transitions counted it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tideq.queue_core.score import BAND_WIDTH
from tideq.queue_core.scripts.replies import accepted, counts, number, number_or_zero, pairs, text
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.states import Reason

MAX_LANES = 24
MAX_READY = 48
"""Told of one lane."""
MAX_HIDDEN = 96
"""Told of one zone."""
ZONES_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
"""Hidden tasks by when they return; the last zone has no end."""
OUTCOMES_MS = 10_000
"""How finely outcomes are counted."""


class PicturedTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of the picture."""

    task_id: str
    lane: int
    score: int
    state: str
    reason: str
    priority: str

    @property
    def rank(self) -> int:
        """Of a ready one."""
        return self.score + (self.lane + 1) * BAND_WIDTH


class LaneSlice(msgspec.Struct, frozen=True):
    """A part of the set: how many lie there, and the first of them."""

    count: int
    first: tuple[PicturedTask, ...]


class QueuePicture(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    ready_count: int
    lane_count: int
    lanes: dict[int, LaneSlice]
    """The most urgent first."""
    zones: tuple[LaneSlice, ...]
    """One for each of `ZONES_MS`, and the rest."""
    lane_names: dict[int, str]


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Ten seconds: what ended in them."""

    at_ms: int
    completed: int
    failed: int
    duration_ms: int


class QueuePictures:
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def picture(self) -> QueuePicture:
        reply = await self._scripts.call(
            "tide", is_bulk=True, max_lanes=MAX_LANES, most_ready=MAX_READY, most_hidden=MAX_HIDDEN, rows=list(ZONES_MS)
        )
        now, ready, lane_count, lanes, zones, names = accepted(reply)
        return QueuePicture(
            now_ms=number(now),
            ready_count=number(ready),
            lane_count=number(lane_count),
            lanes={number(lane): _stretch(stretch) for lane, stretch in lanes},
            zones=tuple(_stretch(zone) for zone in zones),
            lane_names={int(lane): name for lane, name in pairs(names).items()},
        )

    async def outcomes(self, since_ms: int) -> tuple[int, list[Outcomes]]:
        """The store's clock, and the outcomes of so long ago up to now; where nothing happened nothing is told."""
        now, recent = accepted(await self._scripts.call("tallies"))
        counted: dict[int, dict[str, int]] = {}
        for field, value in counts(recent).items():
            name, _, bucket = field.rpartition(":")
            if (began_ms := number_or_zero(bucket, field)) is not None:
                counted.setdefault(began_ms, {})[name] = value
        first = number(now) - since_ms
        return number(now), [
            Outcomes(at_ms=at, **{name: counted[at].get(name, 0) for name in ("completed", "failed", "duration_ms")})
            for at in sorted(counted)
            if at >= first
        ]


def _stretch(told: Sequence[Any]) -> LaneSlice:
    count, rows = told
    return LaneSlice(number(count), tuple(_shown(row) for row in rows))


def _shown(row: Sequence[Any]) -> PicturedTask:
    task_id, score, state, reason, age_bucket, lane = map(text, row)
    return PicturedTask(
        task_id=task_id,
        lane=int(lane),
        score=int(score),
        state=state,
        reason=reason or Reason.SUBMITTED,
        priority=age_bucket.rpartition(":")[0],
    )
