"""Collects the metrics of all processes behind one port, because a scrape reaches only one of them.

Each process serves its own samples on a Unix socket in a shared folder. A dead process is left out: its counters end,
as for any process that Prometheus no longer scrapes.
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

    def __init__(self, folder: Path | None, own_samples: Callable[[], Samples]) -> None:
        self._folder = folder
        self._own_samples = own_samples
        self._own = f"{os.getpid()}.sock"
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "OtherProcesses":
        if self._folder is not None:
            try:
                self._server = await asyncio.start_unix_server(self._answer, self._folder / self._own)
            except OSError as error:
                log.warning("metrics socket not opened, other processes leave this one out", error=str(error))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None and self._folder is not None:
            self._server.close()
            (self._folder / self._own).unlink(missing_ok=True)

    async def samples(self) -> list[Samples]:
        """The samples of the other processes that answer within a second."""
        if self._folder is None:
            return []
        others = [path for path in self._folder.glob("*.sock") if path.name != self._own]
        found = await asyncio.gather(*map(_read_socket, others))
        return [samples for samples in found if samples is not None]

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(encode(self._own_samples()))
            await writer.drain()
        writer.close()


async def _read_socket(path: Path) -> Samples | None:
    try:
        async with asyncio.timeout(MAX_SECONDS):
            reader, writer = await asyncio.open_unix_connection(path)
            content = await reader.read()
            writer.close()
            return decode(content)
    except ConnectionRefusedError:
        _remove_socket(path)
    except (OSError, TimeoutError, ValueError):
        pass
    return None


def _remove_socket(path: Path) -> None:
    """Its process has died."""
    path.unlink(missing_ok=True)
