"""The queue for the dashboard: a picture of the sorted set, and recent trends."""

from typing import Annotated

from litestar import Response, Router, get
from litestar.params import QueryParameter

from tideq.api.edge.responses import json_response
from tideq.api.operations import operation
from tideq.api.schemas.overview import LaneOut, ShownTaskOut, TideOut, TrendsOut, ZoneOut
from tideq.api.schemas.times import rfc3339
from tideq.api.service import InjectedService, Service
from tideq.api.trends import trends_out
from tideq.persistence.read.timings import Timing
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.lanes import task_type_of
from tideq.queue_core.queue_picture import ZONES_MS, LaneSlice, PicturedTask, QueuePicture
from tideq.queue_core.score import queue_score

HOUR_SECONDS = 3_600
DAY_MS = 86_400_000


@get("/tide", opt=operation("viewer", answer=TideOut))
async def tide(service: InjectedService) -> Response[bytes]:
    """Read the first tasks of each lane, and the hidden tasks by the time of their return.

    The response is limited to 24 lanes, 48 tasks of each lane, and 96 tasks of each span of time.
    """
    return json_response(_tide_out(await service.pictures.picture()))


@get("/trends", opt=operation("viewer", answer=TrendsOut))
async def trends(
    service: InjectedService,
    window_seconds: Annotated[
        int,
        QueryParameter(
            name="window_seconds", ge=60, le=HOUR_SECONDS, description="Length of the window in seconds, up to now."
        ),
    ] = 900,
) -> Response[bytes]:
    """Read completions, failures, waiting and running times of the last minutes."""
    now_ms, outcomes = await service.pictures.outcomes(window_seconds * 1000)
    timings, lag_seconds = await _from_history(service, now_ms)
    return json_response(trends_out(now_ms, window_seconds, outcomes, timings, lag_seconds))


async def _from_history(service: Service, now_ms: int) -> tuple[list[Timing], float | None]:
    """A task that ended recently may have waited for hours, so tasks of one day are read."""
    if service.history is None:
        return [], None
    try:
        timings = await service.history.timings.since(now_ms - DAY_MS)
        return timings, await service.history.lag.lag_ms(now_ms) / 1000
    except HistoryUnavailable:
        return [], None


def _tide_out(picture: QueuePicture) -> TideOut:
    zones = zip((*ZONES_MS, None), picture.zones, strict=True)
    return TideOut(
        now=rfc3339(picture.now_ms),
        ready_count=picture.ready_count,
        lane_count=picture.lane_count,
        lanes=[_lane_out(picture, lane) for lane in (*picture.lanes, *_hidden_lanes(picture))],
        zones=[
            ZoneOut(
                until_seconds=None if until_ms is None else until_ms / 1000,
                count=zone.count,
                first=[_hidden_out(task) for task in zone.first],
            )
            for until_ms, zone in zones
        ],
    )


def _hidden_lanes(picture: QueuePicture) -> list[int]:
    """Lanes without ready tasks."""
    return sorted(set(picture.lane_names) - set(picture.lanes))


def _lane_out(picture: QueuePicture, lane: int) -> LaneOut:
    signature, lane_slice = picture.lane_names[lane], picture.lanes.get(lane, LaneSlice(0, ()))
    capabilities = signature.partition("|")[2]
    return LaneOut(
        lane=lane,
        task_type=task_type_of(signature),
        required_capabilities=capabilities.split(",") if capabilities else [],
        ready_count=lane_slice.count,
        first=[_ready_out(task, picture.now_ms) for task in lane_slice.first],
    )


def _ready_out(task: PicturedTask, now_ms: int) -> ShownTaskOut:
    return _shown_out(task, queue_score=queue_score(task.rank, now_ms), returns_at=None)


def _hidden_out(task: PicturedTask) -> ShownTaskOut:
    return _shown_out(task, queue_score=None, returns_at=rfc3339(task.score))


def _shown_out(task: PicturedTask, *, queue_score: float | None, returns_at: str | None) -> ShownTaskOut:
    return ShownTaskOut(
        task_id=task.task_id,
        lane=task.lane,
        status=task.state,
        reason=task.reason,
        priority=task.priority,
        queue_score=queue_score,
        returns_at=returns_at,
    )


router = Router("/api/v1/queue", route_handlers=[tide, trends])
