"""Processes behind one port, asking each other what they count: a scrape reaches one of them and is told of all.

Each answers on a socket of its own in a folder they share. One that died is simply missing: its counters end there, as
those of any process that Prometheus no longer sees.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from tideq.queue_core.samples import Samples, decode, encode

MAX_SECONDS = 1.0

log = structlog.get_logger(__name__)


class OtherProcesses:
    """Use as an async context manager. Without a folder there are none."""

    def __init__(self, folder: Path | None, tell: Callable[[], Samples]) -> None:
        self._folder = folder
        self._tell = tell
        self._own = f"{os.getpid()}.sock"
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "OtherProcesses":
        if self._folder is not None:
            try:
                self._server = await asyncio.start_unix_server(self._answer, self._folder / self._own)
            except OSError as error:
                log.warning("metrics of this process are told by itself only", error=str(error))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None and self._folder is not None:
            self._server.close()
            (self._folder / self._own).unlink(missing_ok=True)

    async def readings(self) -> list[Samples]:
        """What the others count, as far as they answer."""
        if self._folder is None:
            return []
        others = [path for path in self._folder.glob("*.sock") if path.name != self._own]
        told = await asyncio.gather(*map(_ask, others))
        return [readings for readings in told if readings is not None]

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(encode(self._tell()))
            await writer.drain()
        writer.close()


async def _ask(path: Path) -> Samples | None:
    try:
        async with asyncio.timeout(MAX_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            told = await reader.read()
            writer.close()
            return decode(told)
    except ConnectionRefusedError:
        _bury(path)
    except (OSError, TimeoutError, ValueError):
        pass
    return None


def _bury(path: Path) -> None:
    """Whoever listened there has died."""
    path.unlink(missing_ok=True)
