"""Runs TideQ's service for a turn: one API process and, with history, one replicator."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from typing import NamedTuple

from bench.history.stores import Stores
from bench.history.watching import Watch
from bench.http.processes import ServerProcess, api, service_settings
from bench.peers.processes import DriverFailed, last_error
from bench.server import BenchServer
from tideq.persistence.database import Database

QUEUE = "bench"


class Service(NamedTuple):
    api: ServerProcess | None = None
    replicator: ServerProcess | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.api.port}" if self.api else ""

    def spent(self) -> dict[str, float]:
        parts = {"API": self.api, "replicator": self.replicator}
        return {name: process.cpu_us() for name, process in parts.items() if process}


@contextlib.contextmanager
def service(redis_url: str, database_url: str = "") -> Generator[Service]:
    with contextlib.ExitStack() as running:
        if database_url:
            _migrate(redis_url, database_url)
            replicator = running.enter_context(_replicating(redis_url, database_url))
            yield Service(running.enter_context(api(redis_url, database_url)), replicator)
        else:
            yield Service(running.enter_context(api(redis_url)))


async def history_has_everything(redis_url: str, database_url: str) -> None:
    """Returns once history has all events."""
    async with Database(database_url, QUEUE) as database:
        server = BenchServer(redis_url)
        await Watch(Stores(server, database_url, database, QUEUE)).caught_up()
        await server.client.aclose()


def _environ(redis_url: str, database_url: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")}
    return inherited | service_settings(redis_url) | {"DATABASE_URL": database_url}


def _migrate(redis_url: str, database_url: str) -> None:
    command = [sys.executable, "-m", "tideq.cli", "migrate"]
    done = subprocess.run(command, env=_environ(redis_url, database_url), capture_output=True, text=True)
    if done.returncode:
        raise DriverFailed(f"tideq migrate: {done.stderr[-300:]}")


@contextlib.contextmanager
def _replicating(redis_url: str, database_url: str) -> Generator[ServerProcess]:
    command = [sys.executable, "-m", "tideq.cli", "replicate"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, env=_environ(redis_url, database_url), stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            if not process.stdout or not process.stdout.readline():
                raise DriverFailed(f"tideq replicate did not start{last_error(log)}")
            yield ServerProcess(process.pid, 0)
        finally:
            process.kill()
            process.communicate()
