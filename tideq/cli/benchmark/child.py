"""A process of a run: `python -m tideq.cli.benchmark.child load|work` reads its target, then orders.

It ends when the process that started it ends, because its standard input is closed then.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec
import structlog

from tideq.cli.benchmark.messages import BenchProgress, BenchTarget, Failed, Order, Report
from tideq.client.http.exchange import ExchangeFailed, Response
from tideq.queue_core.background import loop_factory

PROGRESS_SECONDS = 0.1
MAX_LINE = 2**26

T = TypeVar("T")


class CallFailed(Exception):
    """The service answered with an error; a measurement that goes on after it would be wrong."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


CALL_ERRORS = (CallFailed, ExchangeFailed, OSError, TimeoutError)


class ReportWriter:
    """Writes reports to standard output; progress at most every 0.1 s."""

    def __init__(self) -> None:
        self.is_orphaned = False
        self._next = 0.0

    def write(self, report: Report) -> None:
        line = msgspec.json.encode(report) + b"\n"
        try:
            while line:
                line = line[os.write(sys.stdout.fileno(), line) :]
        except BrokenPipeError:
            self.is_orphaned = True

    def progress(self, count: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            self.write(BenchProgress(count))


def successful(response: Response) -> Response:
    if not 200 <= response.status < 300:
        raise CallFailed(response)
    return response


def failure(error: Exception) -> Failed:
    if isinstance(error, CallFailed):
        return Failed(error.response.status, error.response.body.decode(errors="replace"))
    return Failed(0, f"{type(error).__name__}: {error}")


async def orders() -> AsyncIterator[bytes]:
    """The lines of standard input."""
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    async for line in reader:
        yield line


async def main(role: str) -> None:
    from tideq.cli.benchmark import noop_worker, submitter

    reports, lines = ReportWriter(), orders()
    target = msgspec.json.decode(await anext(lines), type=BenchTarget)
    run_orders = submitter.run_orders if role == "load" else noop_worker.run_orders
    await run_orders(target, _decoded(lines, msgspec.json.Decoder(Order).decode), reports)


async def _decoded(lines: AsyncIterator[bytes], decode: Callable[[bytes], T]) -> AsyncIterator[T]:
    async for line in lines:
        yield decode(line)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(sys.argv[1]))
