"""`tideq serve`: runs the service against an existing store."""

import contextlib
import sys
import tempfile
from pathlib import Path

from tideq.api.server import PortTaken, address_of, listen
from tideq.api.settings import ServiceSettings
from tideq.cli.exit_codes import USAGE, stop, stop_with
from tideq.cli.output import print_line
from tideq.cli.prefork import Parent
from tideq.cli.service_runner import environ_with, log_to_stderr, run_service, settings_from
from tideq.queue_core.scripts.runner import assemble_all

MAX_PROCESSES = 64


def serve(*, host: str | None = None, port: int | None = None, processes: int = 1) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    Parameters
    ----------
    host
        The address to listen on; also TIDEQ_HOST. An address other than loopback needs access keys.
    port
        The port to listen on; also TIDEQ_PORT.
    processes
        The number of processes behind that port; a process that dies is replaced.
    """
    settings = settings_from(environ_with(TIDEQ_HOST=host, TIDEQ_PORT=port))
    if not settings.redis_url:
        stop("REDIS_URL is not set; set it, for example to redis://127.0.0.1:6379, or use `tideq up`", USAGE)
    if not 1 <= processes <= MAX_PROCESSES:
        stop(f"--processes {processes} is not between 1 and {MAX_PROCESSES}", USAGE)
    if processes == 1:
        run_service(settings, _greet)
    else:
        sys.exit(_serve_with(processes, settings))


def _serve_with(processes: int, settings: ServiceSettings) -> int:
    log_to_stderr()
    assemble_all()
    try:
        listener = listen(settings.host, settings.port)
    except PortTaken as error:
        stop_with(error)
    with contextlib.closing(listener), tempfile.TemporaryDirectory(prefix="tideq-") as shared_folder:
        address = address_of(listener)
        return Parent(
            processes,
            work=lambda on_ready: run_service(
                settings, lambda _address: on_ready(), listener, shared_folder=Path(shared_folder)
            ),
            on_ready=lambda: _greet(address),
            on_stop=listener.close,
        ).run()


def _greet(address: str) -> None:
    print_line(f"TideQ answers at {address}")
