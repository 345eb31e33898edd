"""Runs a peer's processes: the client that takes orders, and its workers, whose CPU is read."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from bench.history.stores import PostgresCpu

START_SECONDS = 60
ORDER_SECONDS = 120


class DriverFailed(Exception):
    """A driver failed; the turn is not counted. The message has the driver's last error."""


class DriverClient:
    """Gives orders to a driver's client process and reads their answers."""

    def __init__(self, process: asyncio.subprocess.Process, log: IO[str]) -> None:
        self._process, self._log = process, log
        self.pid = process.pid

    async def order(self, do: str, **order: Any) -> dict[str, Any]:
        """Returns the answer; raises DriverFailed for an error, for the end of the driver, and after a timeout."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
            await self._process.stdin.drain()
        return await self.answer(ORDER_SECONDS)

    async def answer(self, within_seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(within_seconds):
                line = await self._process.stdout.readline()
        except TimeoutError as error:
            raise DriverFailed(f"no answer within {within_seconds:g} s{last_error(self._log)}") from error
        if not line:
            raise DriverFailed(f"the driver ended{last_error(self._log)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise DriverFailed(answer["error"].strip().splitlines()[-1])
        return answer


@contextlib.asynccontextmanager
async def client(
    command: Sequence[str], settings: Mapping[str, Any], environ: Mapping[str, str], log_path: Path
) -> AsyncGenerator[tuple[DriverClient, dict[str, Any]]]:
    """A driver's client and its first answer, with the library's version."""
    with log_path.open("w+") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            "client",
            json.dumps(settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=dict(environ),
        )
        try:
            driver = DriverClient(process, log)
            yield driver, await driver.answer(START_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class Worker:
    """A worker process and its children, which are paused, continued and killed together."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: IO[str]) -> None:
        self._process, self._log = process, log
        self.pid = process.pid

    def cpu_us(self) -> float:
        """CPU of all its threads and children, including those that ended."""
        return PostgresCpu(self.pid).us()

    def pause(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def check(self) -> None:
        if self._process.poll() is not None:
            raise DriverFailed(f"a worker ended{last_error(self._log)}")


@contextlib.contextmanager
def worker(
    command: Sequence[str], settings: Mapping[str, Any], environ: Mapping[str, str], log_path: Path
) -> Generator[Worker]:
    with log_path.open("w+") as log:
        process = subprocess.Popen(
            [*command, "worker", json.dumps(settings)],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield Worker(process, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_error(log: IO[str]) -> str:
    log.flush()
    log.seek(0)
    lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line] or lines
    return f": {errors[-1][:300]}" if errors else ""
