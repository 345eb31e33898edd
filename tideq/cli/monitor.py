"""`tideq monitor`: the background duties in a process of their own, apart from the API."""

import asyncio
import os
from contextlib import AbstractAsyncContextManager

from tideq.api.settings import ServiceSettings
from tideq.cli import background_duties
from tideq.cli.exit_codes import USAGE, stop, stop_with
from tideq.cli.health_page import health_page
from tideq.cli.output import print_line
from tideq.cli.service_runner import environ_with, log_to_stderr, settings_from, until_signal
from tideq.persistence.recovery.open_store import open_store
from tideq.queue_core.background import run_all
from tideq.queue_core.duties import Duties, DutiesEnded
from tideq.queue_core.errors import QueueError
from tideq.queue_core.settings import SettingsError
from tideq.queue_core.store.connect import StoreUrlError
from tideq.queue_core.store.duty_board import DutyBoard
from tideq.queue_core.telemetry.spans import Tracing
from tideq.telemetry.setup import tracing_from
from tideq.workers.runtime.health import HealthPortTaken


def monitor(*, health_host: str = "127.0.0.1", health_port: int | None = None) -> None:
    """Recover due tasks, watch memory, probe workers, create and drop partitions; until SIGTERM or Ctrl-C.

    Any number of monitors may run. TIDEQ_PROBE_ALLOWED_CIDRS lists the addresses that may be probed; none by default.

    Parameters
    ----------
    health_host
        The address on which the health page and /metrics listen.
    health_port
        The port of the health page; without this option there is no page.
    """
    log_to_stderr()
    settings = settings_from(environ_with())
    if not settings.redis_url:
        stop("REDIS_URL is not set; set it to the URL of the service's store", USAGE)
    print_line("monitoring")
    duties, telemetry = Duties(), settings.queue.telemetry
    page = health_page(health_host, health_port, settings.queue.queue_name, duties)
    try:
        # Lifecycle spans carry the service's name: under the monitor's name it would look as if it called the workers.
        with tracing_from(os.environ, telemetry.traces_per_second, telemetry.service_name, is_fixed=True) as tracing:
            asyncio.run(until_signal(_monitor(settings, page, duties, tracing)))
    except (DutiesEnded, QueueError, SettingsError, StoreUrlError, HealthPortTaken) as error:
        stop_with(error)


async def _monitor(
    settings: ServiceSettings, page: AbstractAsyncContextManager[None], duties: Duties, tracing: Tracing | None
) -> None:
    async with page, open_store(settings.redis_url, settings.queue, settings.history, duties=duties) as store:
        await run_all(
            background_duties.monitor(store, settings, duties, tracing),
            DutyBoard(store.client, store.engine.keys).post_for_ever(duties),
            duties.wait_for_unexpected_end(),
        )
