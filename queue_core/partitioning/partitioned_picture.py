"""The picture of a queue with several partitions: lanes of the same signature are merged into one."""

import heapq
from collections.abc import Callable, Sequence

import msgspec

from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.queue_picture import (
    MAX_HIDDEN,
    MAX_LANES,
    MAX_READY,
    LaneSlice,
    Outcomes,
    PicturedTask,
    QueuePicture,
    QueuePictures,
)
from tideq.queue_core.score import ready_score
from tideq.queue_core.scripts.runner import Scripts


class PartitionedPictures(QueuePictures):
    def __init__(self, parts: Sequence[QueuePictures], scripts: Scripts) -> None:
        super().__init__(scripts)
        self._parts = parts
        self._health = PartitionHealth(len(parts))

    async def picture(self) -> QueuePicture:
        return merged_picture(list((await self._health.call_some(lambda each: self._parts[each].picture())).values()))

    async def outcomes(self, since_ms: int) -> tuple[int, list[Outcomes]]:
        answers = list((await self._health.call_some(lambda each: self._parts[each].outcomes(since_ms))).values())
        by_instant: dict[int, list[Outcomes]] = {}
        for outcomes in (each for _, all_outcomes in answers for each in all_outcomes):
            by_instant.setdefault(outcomes.at_ms, []).append(outcomes)
        return max(now_ms for now_ms, _ in answers), [_added(by_instant[at]) for at in sorted(by_instant)]


def _added(outcomes: Sequence[Outcomes]) -> Outcomes:
    return Outcomes(
        at_ms=outcomes[0].at_ms,
        completed=sum(each.completed for each in outcomes),
        failed=sum(each.failed for each in outcomes),
        duration_ms=sum(each.duration_ms for each in outcomes),
    )


def merged_picture(pictures: Sequence[QueuePicture]) -> QueuePicture:
    """Each partition has its own lane numbers, so lanes are numbered again, by signature."""
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


def pictures_of(scripts: Sequence[Scripts]) -> QueuePictures:
    parts = [QueuePictures(each) for each in scripts]
    return parts[0] if len(parts) == 1 else PartitionedPictures(parts, scripts[0])
