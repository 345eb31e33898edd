"""The caller and the service's configuration, for the dashboard."""

from importlib.metadata import version
from typing import Any

from litestar import Request, Response, Router, get

from tideq.api.edge.auth import Caller
from tideq.api.edge.responses import json_response
from tideq.api.operations import operation
from tideq.api.schemas.overview import WhoamiOut
from tideq.api.service import InjectedService

VERSION = version("tideq")
"""Read once: finding it reads a file of the installation."""

Http = Request[Caller, Any, Any]


@get("/", opt=operation("viewer", "producer", answer=WhoamiOut))
async def whoami(request: Http, service: InjectedService) -> Response[bytes]:
    """Read the name and role of the key, and the service's configuration."""
    settings, queue = service.settings, service.settings.queue
    levels = sorted(queue.priorities, key=lambda name: queue.priorities[name].offset_ms)
    return json_response(
        WhoamiOut(
            name=request.user.name,
            role=request.user.role,
            auth_disabled=settings.auth == "off",
            has_history=service.history is not None,
            version=VERSION,
            queue=queue.queue_name,
            priorities=levels,
            default_priority=queue.default_priority,
            trace_url_template=settings.trace_url_template or None,
        )
    )


router = Router("/api/v1/whoami", route_handlers=[whoami])
