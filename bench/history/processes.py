"""Starts the processes of a measurement: `tideq replicate`, and a load process."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from typing import IO, NamedTuple

import msgspec

from bench.history.stores import Stores
from bench.history.work import Done, Job, Where, Work
from bench.http.processes import client_process, report_of
from bench.server import process_cpu_us
from tideq.persistence.replication.replicator import LOCK

START_SECONDS = 60
STEP_SECONDS = 0.005
STOP_SECONDS = 3
HOLDER = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND granted"


class Replicating(NamedTuple):
    pid: int
    backend_pid: int

    def cpu_us(self) -> tuple[float, float]:
        """CPU of the replicator, and of its PostgreSQL backend."""
        return process_cpu_us(self.pid), process_cpu_us(self.backend_pid)


def environ_for(stores: Stores) -> dict[str, str]:
    """The environment of `tideq` commands, without the TIDEQ_ settings of the shell that started the benchmark."""
    settings = {
        "REDIS_URL": stores.server.url,
        "DATABASE_URL": stores.database_url,
        "TIDEQ_QUEUE": stores.queue_name,
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")} | settings


@contextlib.asynccontextmanager
async def replicating(stores: Stores) -> AsyncGenerator[Replicating]:
    """`tideq replicate`, once it has the lock."""
    with tempfile.TemporaryFile("w+") as log:
        earlier = await _holders(stores)
        process = _start(stores, log)
        try:
            yield Replicating(process.pid, await _holder(stores, process, earlier))
        finally:
            _stop(process)
            log.seek(0)
            sys.stderr.write(log.read())


def _start(stores: Stores, log: IO[str]) -> "subprocess.Popen[bytes]":
    command = (sys.executable, "-m", "tideq.cli", "replicate")
    return subprocess.Popen(command, env=environ_for(stores), stdout=subprocess.DEVNULL, stderr=log)


async def _holder(stores: Stores, process: "subprocess.Popen[bytes]", earlier: set[int]) -> int:
    """The backend of the new replicator; the backend of an ended one may hold the lock a little longer."""
    async with asyncio.timeout(START_SECONDS):
        while process.poll() is None:
            if found := await _holders(stores) - earlier:
                return found.pop()
            await asyncio.sleep(STEP_SECONDS)
    raise RuntimeError("the replicator ended before it got the lock")


async def _holders(stores: Stores) -> set[int]:
    async with stores.database.reading() as connection:
        return {pid for (pid,) in await (await connection.execute(HOLDER, (LOCK,))).fetchall()}


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Sends SIGTERM, then SIGKILL: a replicator may be killed at any time."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def load(stores: Stores, work: Work) -> Done:
    """Runs the load in a process of its own; its time starts once it has connected."""
    where = Where(stores.server.url, stores.database_url, stores.queue_name)
    client = await client_process("bench.history.load", Job(where, work))
    return msgspec.json.decode(await report_of(client), type=Done)
