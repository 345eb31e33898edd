"""Metrics for Prometheus."""

from litestar import Response, Router, get

from tideq.api.metrics.prometheus import MEDIA_TYPE, exposed
from tideq.api.metrics.queue_metrics import all_samples
from tideq.api.operations import operation
from tideq.api.service import InjectedService


@get("/metrics", opt=operation("viewer", answer=None, media_type=MEDIA_TYPE))
async def metrics(service: InjectedService) -> Response[bytes]:
    """The queue and this process, in Prometheus's text format. Answered without a store too, and says so."""
    told = exposed(await all_samples(service), service.settings.queue.queue_name)
    return Response(told, media_type=MEDIA_TYPE)


router = Router("/", route_handlers=[metrics])
