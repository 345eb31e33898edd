"""Probes: is the process alive, and does it take work."""

from litestar import Response, Router, get

from tideq.api.answers import json_answer
from tideq.api.auth import for_everyone
from tideq.api.problems import ServiceClosing
from tideq.api.service import InjectedService


@get("/livez", opt=for_everyone())
async def livez() -> Response[bytes]:
    """The process answers; nothing else is asked."""
    return json_answer({"status": "alive"})


@get("/readyz", opt=for_everyone())
async def readyz(service: InjectedService) -> Response[bytes]:
    """The store answers and is ours, and the service is not stopping."""
    if service.is_closing:
        raise ServiceClosing("draining")
    await service.engine.insight.stats()
    return json_answer({"status": "ready"})


router = Router("/", route_handlers=[livez, readyz])
