"""The real `tideq` command, as people and scripts run it."""

import asyncio
import os
import pty
import subprocess
from collections.abc import Callable
from typing import Any

import msgspec

from tests.api.running import TIDEQ

PATIENCE_SECONDS = 180
"""For a command on a machine that does ten other things; no test waits for so long unless something hangs."""
Run = Callable[..., subprocess.CompletedProcess[str]]


def environ_for(url: str, **more: str) -> dict[str, str]:
    """Neither settings nor a look of whoever runs the tests, or of a library that was imported by them."""
    ours = ("TIDEQ_", "NO_COLOR", "COLUMNS", "LINES")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**inherited, "TIDEQ_URL": url, **more}


def runner(url: str, **environ: str) -> Run:
    def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [TIDEQ, *arguments],
            env=environ_for(url, **environ),
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    return run


def run_on_terminal(url: str, *arguments: str, **environ: str) -> str:
    """What a person sees: standard output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [TIDEQ, *arguments], env=environ_for(url, TERM="xterm", **environ), stdout=theirs, stderr=subprocess.DEVNULL
    )
    os.close(theirs)
    seen = b""
    while chunk := _read(ours):
        seen += chunk
    os.close(ours)
    process.wait()
    return seen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # On Linux the end of the other side is an error.
        return b""


def answer(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    """What a command that ended so said, as JSON."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return msgspec.json.decode(done.stdout)


def lines(done: subprocess.CompletedProcess[str]) -> list[Any]:
    assert done.returncode == 0, (done.stdout, done.stderr)
    return [msgspec.json.decode(line) for line in done.stdout.splitlines()]


async def line_within(stream: asyncio.StreamReader) -> bytes:
    """The next line, or nothing where none comes for a while."""
    try:
        async with asyncio.timeout(0.5):
            return await stream.readline()
    except TimeoutError:
        return b""
