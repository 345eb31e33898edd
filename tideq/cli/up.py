"""`tideq up`: runs the stores, the service and a demo worker on this machine, with all data in one folder."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

from tideq.api.server import PortTaken, listen
from tideq.api.settings import ServiceSettings
from tideq.cli.background_duties import run_all_duties
from tideq.cli.exit_codes import stop_with
from tideq.cli.history import make_partitions
from tideq.cli.output import print_line
from tideq.cli.service_runner import environ_with, log_to_stderr, run_service, settings_from
from tideq.embedded import EmbeddedError, EmbeddedStores
from tideq.embedded.foreground import leave_on_signal
from tideq.persistence.database import Database, UnsuitableDatabase
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.schema.migrations import (
    LOG_AGAIN_SECONDS,
    RETRY_SECONDS,
    MigrationError,
    log_waiting,
    migrate,
)
from tideq.queue_core.background import run_all
from tideq.queue_core.duties import Duties
from tideq.queue_core.errors import HistoryRefused, HistoryUnavailable, QueueError
from tideq.queue_core.log_once import LogOnce
from tideq.queue_core.telemetry.spans import Tracing

DEMO = Path(__file__).parents[1] / "demo.py"
LOCAL_DEFAULTS = {"TIDEQ_AUTH": "off", "TIDEQ_PROBE_ALLOWED_CIDRS": "127.0.0.1/32"}
"""Defaults for one machine; the environment takes precedence."""
DEMO_STOP_SECONDS = 2.0

GREETING = """
TideQ answers at {address}

  the dashboard                      {address}/
  every call, described and to try   {address}/docs
  statistics of the queue            {address}/api/v1/queue/stats

Try it from another terminal{demo}:

  id=$(curl -s {address}/api/v1/tasks -d '{{"task_type": "hello", "parameters": {{"name": "tide"}}}}' | cut -d'"' -f4)
  curl -s {address}/api/v1/tasks/$id{wait}

Ctrl-C stops it; the data stays in {data_dir}.
"""


def up(*, data_dir: Path = Path("data"), port: int | None = None, demo: bool = True) -> None:
    """Run a real Valkey, a real PostgreSQL, the service and a demo worker, until Ctrl-C or SIGTERM.

    REDIS_URL and DATABASE_URL take precedence: a store given by its URL is not started here; `up` waits for it. Access
    keys are not required on loopback, unless TIDEQ_AUTH=keys; then the demo worker, which has no key, does not run.

    Parameters
    ----------
    data_dir
        The data folder of the stores.
    port
        The port to listen on at 127.0.0.1; also TIDEQ_PORT.
    demo
        Also run a worker for the task types `hello` and `sleep`.
    """
    environ = {**LOCAL_DEFAULTS, **environ_with(TIDEQ_PORT=port)}
    settings = settings_from(environ)
    leave_on_signal()
    log_to_stderr()
    try:
        with contextlib.closing(listen(settings.host, settings.port)) as listener:
            _run(data_dir, environ, listener, has_demo=demo and settings.auth == "off")
    except (EmbeddedError, MigrationError, PortTaken) as error:
        stop_with(error)


def _run(data_dir: Path, environ: dict[str, str], listener: socket.socket, *, has_demo: bool) -> None:
    with (
        EmbeddedStores(
            data_dir,
            redis_url=environ.get("REDIS_URL"),
            database_url=environ.get("DATABASE_URL"),
            on_progress=print_line,
        ) as stores,
        _demo() as demo,
    ):
        print_line("Starting the service")

        def greet(address: str) -> None:
            if has_demo:
                demo.start(address)
            print_line(_greeting(address, data_dir, has_demo=has_demo))

        settings = settings_from({**environ, "REDIS_URL": stores.redis_url, "DATABASE_URL": stores.database_url})
        run_duties = run_all_duties if _migrate_now(settings) else _migrate_and_run_all_duties
        run_service(settings, greet, listener, before_stop=demo.stop, run_duties=run_duties)


def _migrate_now(settings: ServiceSettings) -> bool:
    """Returns False where the database cannot be migrated now but may be later."""

    async def run() -> bool:
        async with Database(settings.history.database_url, settings.queue.queue_name) as database:
            return await _failure_to_migrate(database, settings) is None

    try:
        return asyncio.run(run())
    except (QueueError, MigrationError) as error:
        stop_with(error)


async def _migrate_and_run_all_duties(
    store: OpenStore, settings: ServiceSettings, duties: Duties, tracing: Tracing | None
) -> None:
    """Until the database is back the service is not ready and refuses calls."""
    await run_all(migrate_when_back(store, settings), run_all_duties(store, settings, duties, tracing))


async def migrate_when_back(store: OpenStore, settings: ServiceSettings) -> None:
    """Retries until the migration succeeds, logging each reason once in a while; raises errors that will not pass."""
    logged = LogOnce(LOG_AGAIN_SECONDS)
    while store.database is not None and (failure := await _failure_to_migrate(store.database, settings)):
        log_waiting(failure, logged)
        await asyncio.sleep(RETRY_SECONDS)


async def _failure_to_migrate(database: Database, settings: ServiceSettings) -> HistoryUnavailable | None:
    """Returns an error that may pass: a database that is unreachable, read-only for now, or lacks a grant."""
    try:
        await migrate(database)
        await make_partitions(database, settings)
    except HistoryUnavailable as error:
        if isinstance(error, UnsuitableDatabase) or (isinstance(error, HistoryRefused) and error.is_login):
            raise
        return error
    return None


def _greeting(address: str, data_dir: Path, *, has_demo: bool) -> str:
    demo, wait = ("; a demo worker does `hello` and `sleep`", "/wait") if has_demo else ("", "")
    return GREETING.format(address=address, data_dir=data_dir, demo=demo, wait=wait)


class Demo:
    """The demo worker in a process of its own. It stops first, while the service can still take its tasks back."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, address: str) -> None:
        """In a process group of its own: Ctrl-C reaches only this process, which stops everything in order."""
        command = [sys.executable, "-I", str(DEMO), address, str(os.getpid())]
        self._process = subprocess.Popen(command, process_group=0)

    async def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, DEMO_STOP_SECONDS)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def _demo() -> Generator[Demo]:
    demo = Demo()
    try:
        yield demo
    finally:
        demo.end()
