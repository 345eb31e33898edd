"""Metrics for Prometheus."""

from litestar import Response, Router, get

from tideq.api.calls import call
from tideq.api.exposition import Exposition
from tideq.api.service import InjectedService
from tideq.queue_core.engine.insight import Stats
from tideq.queue_core.errors import QueueError

MEDIA_TYPE = "text/plain; version=0.0.4"


@get("/metrics", opt=call("viewer", answer=None, media_type=MEDIA_TYPE))
async def metrics(service: InjectedService) -> Response[bytes]:
    """The queue and this process, in Prometheus's text format. Answered without a store too, and says so."""
    told = Exposition(service.meters, await _stats(service), service.wakeups.sleeping_count)
    return Response(told.text(), media_type=MEDIA_TYPE)


async def _stats(service: InjectedService) -> Stats | None:
    try:
        return await service.engine.insight.stats()
    except QueueError:
        return None


router = Router("/", route_handlers=[metrics])
