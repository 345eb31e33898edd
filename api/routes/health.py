"""Probes: is the process alive, and does it take work."""

import contextlib

from litestar import Response, Router, get

from tideq.api import schemas
from tideq.api.edge.problems import ServiceClosing
from tideq.api.edge.responses import json_response
from tideq.api.operations import PUBLIC, operation
from tideq.api.service import InjectedService
from tideq.queue_core.duties import STORE_CHECK
from tideq.queue_core.errors import StoreUnavailable, Unavailable
from tideq.queue_core.store.duty_board import Elsewhere


@get("/livez", opt=operation(PUBLIC, answer=schemas.HealthOut))
async def livez() -> Response[bytes]:
    """The process answers; nothing else is asked."""
    return json_response(schemas.HealthOut(status="alive"))


@get("/readyz", opt=operation(PUBLIC, answer=schemas.ReadyOut, refuses=(ServiceClosing,)))
async def readyz(service: InjectedService) -> Response[bytes]:
    """The store answers and is ours, and the service is not stopping. What it keeps is nobody's business here.

    It is ready with a stale duty too: it takes work, and with every process refusing nobody would.
    """
    if service.is_closing:
        raise ServiceClosing("draining")
    try:
        await service.engine.insight.unreadable(1)
    except Unavailable as error:
        if why := service.duties.error_of(STORE_CHECK):
            raise StoreUnavailable(f"closed, and waiting: {why}") from error
        raise
    elsewhere: list[Elsewhere] = []
    with contextlib.suppress(Unavailable):
        elsewhere = await service.board.elsewhere()
    stale = tuple(schemas.StaleDutyOut(duty=each.duty, seconds=each.seconds) for each in service.duties.stale)
    return json_response(
        schemas.ReadyOut(
            status="ready",
            stale_duties=stale,
            stale_elsewhere=tuple(schemas.StaleElsewhereOut(**each._asdict()) for each in elsewhere),
        )
    )


router = Router("/", route_handlers=[livez, readyz])
