"""Probes: is the process alive, and does it take work."""

from litestar import Response, Router, get

from tideq.api import schemas
from tideq.api.answers import json_answer
from tideq.api.calls import PUBLIC, call
from tideq.api.problems import ServiceClosing
from tideq.api.service import InjectedService


@get("/livez", opt=call(PUBLIC, answer=schemas.HealthOut))
async def livez() -> Response[bytes]:
    """The process answers; nothing else is asked."""
    return json_answer(schemas.HealthOut(status="alive"))


@get("/readyz", opt=call(PUBLIC, answer=schemas.HealthOut, refuses=(ServiceClosing,)))
async def readyz(service: InjectedService) -> Response[bytes]:
    """The store answers and is ours, and the service is not stopping."""
    if service.is_closing:
        raise ServiceClosing("draining")
    await service.engine.insight.stats()
    return json_answer(schemas.HealthOut(status="ready"))


router = Router("/", route_handlers=[livez, readyz])
