"""Starts the processes of a measurement: a server, whose CPU is read, and clients that start together."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from bench.http.jobs import Done, Job
from bench.server import process_cpu_us

GREETING = "TideQ answers at "
NO_LIMITS = {
    "TIDEQ_DEPTH_REFUSE_LOW": "100000000",
    "TIDEQ_DEPTH_REFUSE_MEDIUM": "100000000",
    "TIDEQ_DEPTH_REFUSE_ALL": "100000000",
    "TIDEQ_MAX_OUTBOX_ENTRIES": "100000000",
}


class ServerProcess(NamedTuple):
    pid: int
    port: int

    def cpu_us(self) -> float:
        return process_cpu_us(self.pid)


class Load(NamedTuple):
    seconds: float
    milliseconds: dict[str, list[float]]


@contextmanager
def api(
    redis_url: str, database_url: str = "", settings: Mapping[str, str] = MappingProxyType({})
) -> Generator[ServerProcess]:
    """`tideq serve` with default settings, except for the depth limits."""
    settings = {**service_settings(redis_url), "DATABASE_URL": database_url, **settings}
    with started(("-m", "tideq.cli", "serve", "--port", "0"), settings, GREETING) as (pid, line):
        yield _server(pid, line)


@contextmanager
def empty_echo() -> Generator[ServerProcess]:
    with started(("-m", "bench.http.echo"), {}, GREETING) as (pid, line):
        yield _server(pid, line)


async def load(*jobs: Job) -> Load:
    """Runs a client process for each job; the time is measured from when all are ready until all are done."""
    clients = [await client_process("bench.http.client", job) for job in jobs]
    began = time.perf_counter()
    reports = await asyncio.gather(*map(report_of, clients))
    seconds = time.perf_counter() - began
    return Load(seconds, _merged([msgspec.json.decode(report, type=Done) for report in reports]))


def _server(pid: int, greeting: str) -> ServerProcess:
    return ServerProcess(pid, int(greeting.rpartition(":")[2]))


def service_settings(redis_url: str) -> dict[str, str]:
    return {"REDIS_URL": redis_url, "TIDEQ_AUTH": "off", "TIDEQ_QUEUE": "bench", **NO_LIMITS}


@contextmanager
def started(arguments: Sequence[str], settings: Mapping[str, str], greeting: str) -> Generator[tuple[int, str]]:
    """The pid of a Python process and the first line it prints; no TIDEQ_ settings of the current shell."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=inherited | dict(settings), stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith(greeting):
                log.seek(0)
                raise RuntimeError(f"{' '.join(arguments)} did not start: {log.read()[-2_000:]}")
            yield process.pid, line.strip()
        finally:
            process.terminate()
            process.communicate()


async def client_process(module: str, job: msgspec.Struct) -> asyncio.subprocess.Process:
    """A client process that has read its job and connected."""
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**26
    )
    if await _answer(client, msgspec.json.encode(job)) != b"ready\n":
        raise RuntimeError("a client process did not start; see its error above")
    return client


async def report_of(client: asyncio.subprocess.Process) -> bytes:
    """Lets it begin; returns its report once it has ended."""
    report = await _answer(client, b"go")
    if await client.wait() or not report:
        raise RuntimeError("a client process failed; see its error above")
    return report


async def _answer(client: asyncio.subprocess.Process, line: bytes) -> bytes:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(line + b"\n")
    await client.stdin.drain()
    return await client.stdout.readline()


def _merged(done: Sequence[Done]) -> dict[str, list[float]]:
    merged: dict[str, list[float]] = {}
    for each in done:
        for kind, milliseconds in each.milliseconds.items():
            merged.setdefault(kind, []).extend(milliseconds)
    return merged
