"""Probes: is the process alive, and does it take work."""

import contextlib

from litestar import Response, Router, get

from tideq.api import schemas
from tideq.api.edge.responses import json_answer
from tideq.api.operations import PUBLIC, call
from tideq.api.edge.problems import ServiceClosing
from tideq.api.service import InjectedService
from tideq.queue_core.duties import CUSTODY
from tideq.queue_core.store.duty_board import Elsewhere
from tideq.queue_core.errors import StoreUnavailable, Unavailable


@get("/livez", opt=call(PUBLIC, answer=schemas.HealthOut))
async def livez() -> Response[bytes]:
    """The process answers; nothing else is asked."""
    return json_answer(schemas.HealthOut(status="alive"))


@get("/readyz", opt=call(PUBLIC, answer=schemas.ReadyOut, refuses=(ServiceClosing,)))
async def readyz(service: InjectedService) -> Response[bytes]:
    """The store answers and is ours, and the service is not stopping. What it keeps is nobody's business here.

    It is ready with a stale duty too: it takes work, and with every process refusing nobody would.
    """
    if service.is_closing:
        raise ServiceClosing("draining")
    try:
        await service.engine.insight.unreadable(1)
    except Unavailable as error:
        if why := service.duties.error_of(CUSTODY):
            raise StoreUnavailable(f"closed, and waiting: {why}") from error
        raise
    elsewhere: list[Elsewhere] = []
    with contextlib.suppress(Unavailable):
        elsewhere = await service.board.elsewhere()
    stale = tuple(schemas.StaleDutyOut(duty=each.duty, seconds=each.seconds) for each in service.duties.stale)
    return json_answer(
        schemas.ReadyOut(
            status="ready",
            stale_duties=stale,
            stale_elsewhere=tuple(schemas.StaleElsewhereOut(**each._asdict()) for each in elsewhere),
        )
    )


router = Router("/", route_handlers=[livez, readyz])
