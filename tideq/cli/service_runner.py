"""Runs the service for `up` and `serve`: settings from the environment, background duties, errors as exit codes."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from tideq.api.server import PortTaken, serve
from tideq.api.service import NoKeys, Service
from tideq.api.settings import ServiceSettings, read_service_settings
from tideq.cli import background_duties
from tideq.cli.exit_codes import stop_with
from tideq.cli.logging import log_to_stderr as log_to_stderr
from tideq.persistence.recovery.open_store import OpenStore
from tideq.queue_core.background import background_task, cancel_and_wait, run
from tideq.queue_core.duties import Duties, DutiesEnded
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.scripts.runner import assemble_all
from tideq.queue_core.settings import SettingsError
from tideq.queue_core.store.connect import StoreUrlError
from tideq.queue_core.telemetry.spans import Tracing
from tideq.telemetry.setup import tracing_from

BackgroundDuties = Callable[[OpenStore, ServiceSettings, Duties, Tracing | None], Coroutine[Any, Any, None]]


def settings_from(environ: Mapping[str, str]) -> ServiceSettings:
    try:
        return read_service_settings(environ)
    except SettingsError as error:
        stop_with(error)


def run_service(
    settings: ServiceSettings,
    on_ready: Callable[[str], None],
    listener: socket.socket | None = None,
    before_stop: Callable[[], Awaitable[None]] | None = None,
    run_duties: BackgroundDuties = background_duties.sweep,
    shared_folder: Path | None = None,
) -> None:
    """`shared_folder` holds the metrics of all processes behind one port."""
    log_to_stderr()
    assemble_all()

    async def run_beside(service: Service) -> None:
        async with service.with_other_processes(shared_folder):
            await run_duties(service.store, settings, service.duties, service.tracing)

    try:
        telemetry = settings.queue.telemetry
        with tracing_from(os.environ, telemetry.traces_per_second, telemetry.service_name) as tracing:
            run(serve(settings, on_ready, run_beside, listener, before_stop, tracing))
    except (DutiesEnded, NoKeys, PortTaken, SettingsError, StoreUrlError, Unavailable) as error:
        stop_with(error)


async def until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` until it ends or SIGTERM or Ctrl-C arrives; raises the error of `work`."""
    job, stop_requested, loop = asyncio.ensure_future(work), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    async with background_task(stop_requested.wait()) as waiting:
        await asyncio.wait((job, waiting), return_when=asyncio.FIRST_COMPLETED)
    await cancel_and_wait(job)
    if not job.cancelled():
        job.result()


def environ_with(**overrides: object) -> dict[str, str]:
    """The environment; options of the command line take precedence."""
    given = {name: str(value) for name, value in overrides.items() if value is not None}
    return {**os.environ, **given}
