"""`tideq monitor`: the service's own housekeeping, for those who run it apart from the API."""

import asyncio
import sys

from tideq.api.settings import ServiceSettings
from tideq.cli import housekeeping
from tideq.cli.running import environ_with, log_to_stderr, say, settings_from, until_signal
from tideq.persistence.kept_store import open_kept_store
from tideq.queue_core.engine.store import StoreUrlError
from tideq.queue_core.errors import QueueError


def monitor() -> None:
    """Recover what fell due, watch memory, probe workers, make and drop partitions; until SIGTERM or Ctrl-C.

    Any number may run. TIDEQ_PROBE_ALLOWED_CIDRS says which addresses may be probed; by default none.
    """
    log_to_stderr()
    settings = settings_from(environ_with())
    if not settings.redis_url:
        sys.exit("error: set REDIS_URL to the service's store")
    say("monitoring")
    try:
        asyncio.run(until_signal(_monitor(settings)))
    except (QueueError, StoreUrlError) as error:
        sys.exit(f"error: {error}")


async def _monitor(settings: ServiceSettings) -> None:
    async with open_kept_store(settings.redis_url, settings.queue, settings.history) as store:
        await housekeeping.monitor(store, settings)
