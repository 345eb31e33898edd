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
        """CPU of all its threads, from the process's Linux CPU clock; `/proc` only counts ticks of 10 ms."""
        return time.clock_gettime(~self.pid << 3 | 2) * 1e6


class Load(NamedTuple):
    seconds: float
    milliseconds: dict[str, list[float]]


@contextmanager
def api(
    redis_url: str, database_url: str = "", settings: Mapping[str, str] = MappingProxyType({})
) -> Generator[ServerProcess]:
    """`tideq serve` with default settings, except for the depth limits."""
    settings = {**service_settings(redis_url), "DATABASE_URL": database_url, **settings}
    with _serving(("-m", "tideq.cli", "serve", "--port", "0"), settings) as server:
        yield server


@contextmanager
def empty_echo() -> Generator[ServerProcess]:
    with _serving(("-m", "bench.http.echo"), {}) as server:
        yield server


async def load(*jobs: Job) -> Load:
    """Runs a client process for each job; the time is measured from when all are ready until all are done."""
    clients = [await _client(job) for job in jobs]
    began = time.perf_counter()
    done = await asyncio.gather(*map(_go, clients))
    return Load(time.perf_counter() - began, _merged(done))


def service_settings(redis_url: str) -> dict[str, str]:
    return {"REDIS_URL": redis_url, "TIDEQ_AUTH": "off", "TIDEQ_QUEUE": "bench", **NO_LIMITS}


@contextmanager
def _serving(arguments: Sequence[str], settings: dict[str, str]) -> Generator[ServerProcess]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEQ_")}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=inherited | settings, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            greeting = process.stdout.readline() if process.stdout else ""
            if not greeting.startswith(GREETING):
                log.seek(0)
                raise RuntimeError(f"{' '.join(arguments)} did not start: {log.read()[-2_000:]}")
            yield ServerProcess(process.pid, int(greeting.rpartition(":")[2]))
        finally:
            process.terminate()
            process.communicate()


async def _client(job: Job) -> asyncio.subprocess.Process:
    client = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.http.client",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**26,
    )
    await _write_line(client, msgspec.json.encode(job))
    if await _read_line(client) != b"ready\n":
        raise RuntimeError("a client process did not start; see its error above")
    return client


async def _go(client: asyncio.subprocess.Process) -> Done:
    await _write_line(client, b"go")
    answer = await _read_line(client)
    if await client.wait() or not answer:
        raise RuntimeError("a client process failed; see its error above")
    return msgspec.json.decode(answer, type=Done)


async def _write_line(client: asyncio.subprocess.Process, line: bytes) -> None:
    assert client.stdin is not None
    client.stdin.write(line + b"\n")
    await client.stdin.drain()


async def _read_line(client: asyncio.subprocess.Process) -> bytes:
    assert client.stdout is not None
    return await client.stdout.readline()


def _merged(done: Sequence[Done]) -> dict[str, list[float]]:
    merged: dict[str, list[float]] = {}
    for each in done:
        for kind, milliseconds in each.milliseconds.items():
            merged.setdefault(kind, []).extend(milliseconds)
    return merged
