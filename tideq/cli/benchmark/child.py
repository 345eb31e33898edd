"""A process of a run: `python -m tideq.cli.benchmark.child load|work` reads its target, then orders.

It ends when whoever started it has gone: then nobody holds the other end of its standard input.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec
import structlog

from tideq.cli.benchmark.messages import Failed, Report, Order, Progress, Target
from tideq.client.http.answers import Response
from tideq.queue_core.background import loop_factory

PROGRESS_SECONDS = 0.1
MAX_LINE = 2**26

T = TypeVar("T")


class Refused(Exception):
    """The service did not do what it was asked to; what is measured after this means nothing."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


NO_SUCCESS = (Refused, OSError, TimeoutError)


class ReportWriter:
    """Writes what there is to tell, progress no more often than a person can follow."""

    def __init__(self) -> None:
        self.is_orphaned = False
        self._next = 0.0

    def write(self, news: Report) -> None:
        line = msgspec.json.encode(news) + b"\n"
        try:
            while line:
                line = line[os.write(sys.stdout.fileno(), line) :]
        except BrokenPipeError:
            self.is_orphaned = True

    def progress(self, count: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            self.write(Progress(count))


def successful(response: Response) -> Response:
    if not 200 <= response.status < 300:
        raise Refused(response)
    return response


def failure(error: Exception) -> Failed:
    if isinstance(error, Refused):
        return Failed(error.response.status, error.response.body.decode(errors="replace"))
    return Failed(0, f"{type(error).__name__}: {error}")


async def orders() -> AsyncIterator[bytes]:
    """The lines of standard input, to its end."""
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    async for line in reader:
        yield line


async def main(role: str) -> None:
    from tideq.cli.benchmark import loading, working

    teller, lines = ReportWriter(), orders()
    target = msgspec.json.decode(await anext(lines), type=Target)
    obey = loading.run_orders if role == "load" else working.run_orders
    await obey(target, _decoded(lines, msgspec.json.Decoder(Order).decode), teller)


async def _decoded(lines: AsyncIterator[bytes], decode: Callable[[bytes], T]) -> AsyncIterator[T]:
    async for line in lines:
        yield decode(line)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(sys.argv[1]))
