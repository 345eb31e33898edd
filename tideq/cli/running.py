"""What `up` and `serve` share: settings from the environment, the service with its housekeeping, how errors read."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from tideq.api.server import PortTaken, run, serve
from tideq.api.service import NoKeys
from tideq.api.settings import ServiceSettings, read_service_settings
from tideq.cli import housekeeping
from tideq.cli.saying import log_to_stderr as log_to_stderr
from tideq.cli.saying import say as say
from tideq.persistence.kept_store import KeptStore
from tideq.queue_core.engine.scripts import assemble_all
from tideq.queue_core.engine.store import StoreUrlError
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.settings import SettingsError

Housekeeping = Callable[[KeptStore, ServiceSettings], Coroutine[Any, Any, None]]


def settings_from(environ: Mapping[str, str]) -> ServiceSettings:
    try:
        return read_service_settings(environ)
    except SettingsError as error:
        sys.exit(f"error: {error}")


def run_service(
    settings: ServiceSettings,
    on_ready: Callable[[str], None],
    listener: socket.socket | None = None,
    before_stop: Callable[[], Awaitable[None]] | None = None,
    beside: Housekeeping = housekeeping.sweep,
) -> None:
    log_to_stderr()
    assemble_all()
    try:
        run(serve(settings, on_ready, lambda service: beside(service.store, settings), listener, before_stop))
    except (NoKeys, PortTaken, StoreUrlError, Unavailable) as error:
        sys.exit(f"error: {error}")


async def until_signal(work: Coroutine[Any, Any, None]) -> None:
    """SIGTERM and Ctrl-C end it."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def environ_with(**overrides: object) -> dict[str, str]:
    """The environment, with options of the command line over it."""
    given = {name: str(value) for name, value in overrides.items() if value is not None}
    return {**os.environ, **given}
