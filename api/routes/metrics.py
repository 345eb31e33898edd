"""Metrics for Prometheus."""

from litestar import Response, Router, get

from tideq.api.metrics.prometheus import MEDIA_TYPE, exposition
from tideq.api.metrics.queue_metrics import all_samples
from tideq.api.operations import operation
from tideq.api.service import InjectedService


@get("/metrics", opt=operation("viewer", answer=None, media_type=MEDIA_TYPE))
async def metrics(service: InjectedService) -> Response[bytes]:
    """Metrics of the queue and this process in Prometheus's text format. Without a store only `tideq_store_up` is 0."""
    content = exposition(await all_samples(service), service.settings.queue.queue_name)
    return Response(content, media_type=MEDIA_TYPE)


router = Router("/", route_handlers=[metrics])
