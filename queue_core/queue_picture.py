"""A picture of the sorted set for the dashboard: lanes with their first tasks, hidden tasks by when they return.

The picture is bounded whatever the depth; tasks beyond the bounds are only counted. Also the outcomes of the last hour.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.score import BAND_WIDTH, ready_score
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
    def __init__(self, scripts: Sequence[Scripts]) -> None:
        self._scripts = scripts
        self._health = PartitionHealth(len(scripts))

    async def picture(self) -> QueuePicture:
        pictures = await self._health.call_some(lambda each: _read_picture(self._scripts[each]))
        return merged_picture(list(pictures.values()))

    async def outcomes(self, since_ms: int) -> tuple[int, list[Outcomes]]:
        """Returns the store's time and the outcomes of the last `since_ms`; intervals without any are left out."""
        found = await self._health.call_some(lambda each: _read_outcomes(self._scripts[each], since_ms))
        answers = list(found.values())
        by_instant: dict[int, list[Outcomes]] = {}
        for outcomes in (each for _, all_outcomes in answers for each in all_outcomes):
            by_instant.setdefault(outcomes.at_ms, []).append(outcomes)
        return max(now_ms for now_ms, _ in answers), [_added(by_instant[at]) for at in sorted(by_instant)]


async def _read_picture(scripts: Scripts) -> QueuePicture:
    reply = await scripts.call(
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


async def _read_outcomes(scripts: Scripts, since_ms: int) -> tuple[int, list[Outcomes]]:
    now, recent = accepted(await scripts.call("outcome_counts"))
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


def _added(outcomes: Sequence[Outcomes]) -> Outcomes:
    return Outcomes(
        at_ms=outcomes[0].at_ms,
        completed=sum(each.completed for each in outcomes),
        failed=sum(each.failed for each in outcomes),
        duration_ms=sum(each.duration_ms for each in outcomes),
    )


def merged_picture(pictures: Sequence[QueuePicture]) -> QueuePicture:
    """Each partition has its own lane numbers, so lanes are numbered again, by signature."""
    if len(pictures) == 1:
        return pictures[0]
    signatures = sorted({name for picture in pictures for name in picture.lane_names.values()})
    numbers = {signature: number for number, signature in enumerate(signatures)}
    by_lane: dict[int, list[LaneSlice]] = {}
    for picture in pictures:
        for lane, part in picture.lanes.items():
            by_lane.setdefault(numbers[picture.lane_names[lane]], []).append(_renumbered(part, picture, numbers))
    lanes = {lane: _merged(parts, MAX_READY, _by_rank) for lane, parts in by_lane.items()}
    first = sorted(lanes, key=lambda lane: [task.rank for task in lanes[lane].first[:1]] or [float("inf")])
    zones = zip(*([_renumbered(zone, picture, numbers) for zone in picture.zones] for picture in pictures), strict=True)
    return QueuePicture(
        now_ms=max(picture.now_ms for picture in pictures),
        ready_count=sum(picture.ready_count for picture in pictures),
        lane_count=max(len(lanes), *(picture.lane_count for picture in pictures)),
        lanes={lane: lanes[lane] for lane in first[:MAX_LANES]},
        zones=tuple(_merged(zone, MAX_HIDDEN, _by_score) for zone in zones),
        lane_names=dict(enumerate(signatures)),
    )


def _renumbered(part: LaneSlice, picture: QueuePicture, numbers: dict[str, int]) -> LaneSlice:
    return LaneSlice(part.count, tuple(_in_lane(task, numbers[picture.lane_names[task.lane]]) for task in part.first))


def _in_lane(task: PicturedTask, lane: int) -> PicturedTask:
    score = task.score if task.score > 0 else ready_score(lane, task.rank)
    return msgspec.structs.replace(task, lane=lane, score=score)


def _merged(parts: Sequence[LaneSlice], most: int, key: Callable[[PicturedTask], tuple[int, str]]) -> LaneSlice:
    first = list(heapq.merge(*(part.first for part in parts), key=key))[:most]
    return LaneSlice(sum(part.count for part in parts), tuple(first))


def _by_rank(task: PicturedTask) -> tuple[int, str]:
    return task.rank, task.task_id


def _by_score(task: PicturedTask) -> tuple[int, str]:
    return task.score, task.task_id
