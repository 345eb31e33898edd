"""Liveness and readiness probes."""

import contextlib

from litestar import Response, Router, get

from tideq.api.edge.problems import ServiceClosing
from tideq.api.edge.responses import json_response
from tideq.api.operations import PUBLIC, operation
from tideq.api.schemas.queue import HealthOut, ReadyOut, StaleDutyOut, StaleElsewhereOut
from tideq.api.service import InjectedService
from tideq.queue_core.duties import STORE_CHECK
from tideq.queue_core.errors import StoreUnavailable, Unavailable
from tideq.queue_core.store.duty_board import MissedDuty


@get("/livez", opt=operation(PUBLIC, answer=HealthOut))
async def livez() -> Response[bytes]:
    """Check that the process answers. The store is not contacted."""
    return json_response(HealthOut(status="alive"))


@get("/readyz", opt=operation(PUBLIC, answer=ReadyOut, refuses=(ServiceClosing,)))
async def readyz(service: InjectedService) -> Response[bytes]:
    """Check that the store answers and is verified, and that the service is not stopping.

    A process with stale duties is ready too: it accepts requests, and otherwise every process might refuse them.
    """
    if service.is_closing:
        raise ServiceClosing("the service is stopping; try again")
    try:
        await service.engine.insight.unreadable(1)
    except Unavailable as error:
        if why := service.duties.error_of(STORE_CHECK):
            raise StoreUnavailable(f"the service is closed until the store is verified: {why}") from error
        raise
    elsewhere: list[MissedDuty] = []
    with contextlib.suppress(Unavailable):
        elsewhere = await service.duty_board.elsewhere()
    stale = tuple(StaleDutyOut(duty=each.duty, seconds=each.seconds) for each in service.duties.stale)
    return json_response(
        ReadyOut(
            status="ready",
            stale_duties=stale,
            stale_elsewhere=tuple(StaleElsewhereOut(**each._asdict()) for each in elsewhere),
        )
    )


router = Router("/", route_handlers=[livez, readyz])
