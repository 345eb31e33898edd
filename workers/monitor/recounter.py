"""The recounter: corrects the store's counts of ended tasks from history when that is due.

It compares states, not events, so a store that was emptied or replaced needs no notice.
"""

import asyncio

import structlog

from tideq.persistence.recount import Recount, RecountPostponed
from tideq.queue_core.duties import Duties, Duty

LOOK_SECONDS = 5.0
POSTPONED_SECONDS = 600.0
"""A recount postponed for longer counts as stale."""

log = structlog.get_logger(__name__)


async def recount_for_ever(recount: Recount, duties: Duties, look_seconds: float = LOOK_SECONDS) -> None:
    async def work(duty: Duty) -> None:
        while True:
            try:
                if await recount.is_due():
                    await recount.run()
                duty.succeeded()
            except RecountPostponed as reason:
                log.debug("recount postponed", reason=str(reason))
            await asyncio.sleep(look_seconds)

    await duties.add("recount", work, POSTPONED_SECONDS)
