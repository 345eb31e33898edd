"""What `up` and `serve` share: settings from the environment, the service with its housekeeping, how errors read."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping

import structlog

from tideq.api.server import PortTaken, serve
from tideq.api.service import NoKeys, Service
from tideq.api.settings import ServiceSettings, read_service_settings
from tideq.queue_core.engine.memory import MemoryWatch
from tideq.queue_core.engine.store import StoreUrlError
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.settings import SettingsError
from tideq.workers.monitor.sweeper import sweep_for_ever


def settings_from(environ: Mapping[str, str]) -> ServiceSettings:
    try:
        return read_service_settings(environ)
    except SettingsError as error:
        sys.exit(f"error: {error}")


def run_service(settings: ServiceSettings, on_ready: Callable[[str], None]) -> None:
    log_to_stderr()
    try:
        asyncio.run(serve(settings, on_ready, beside=_housekeeping))
    except (NoKeys, PortTaken, StoreUrlError, Unavailable) as error:
        sys.exit(f"error: {error}")


async def _housekeeping(service: Service) -> None:
    watch = MemoryWatch(service.client, service.engine.scripts, service.settings.queue.admission.max_memory_ratio)
    await sweep_for_ever(service.engine.queue, watch)


def log_to_stderr() -> None:
    """Standard output is for answers. Tracebacks come without the values of variables: they may be payloads or keys."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def environ_with(**overrides: object) -> dict[str, str]:
    """The environment, with options of the command line over it."""
    given = {name: str(value) for name, value in overrides.items() if value is not None}
    return {**os.environ, **given}


def say(line: str = "") -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
