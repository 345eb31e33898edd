"""The recounter: what the store counts as ended is set right by history whenever that is due.

It looks at the state of things, not at what happened: whoever emptied or replaced the store need not know of it.
"""

import asyncio

import structlog

from tideq.persistence.recount import NotNow, Recount
from tideq.queue_core.duties import Duties, Duty

LOOK_SECONDS = 5.0
POSTPONED_SECONDS = 600.0
"""How long it may be postponed before it is late."""

log = structlog.get_logger(__name__)


async def recount_for_ever(recount: Recount, duties: Duties, look_seconds: float = LOOK_SECONDS) -> None:
    async def work(duty: Duty) -> None:
        while True:
            try:
                if await recount.is_due():
                    await recount.run()
                duty.succeeded()
            except NotNow as reason:
                log.debug("recount postponed", reason=str(reason))
            await asyncio.sleep(look_seconds)

    await duties.add("recount", work, POSTPONED_SECONDS)
