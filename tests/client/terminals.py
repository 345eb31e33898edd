"""A terminal with somebody at it: a command runs there, keys are typed, the screen is read."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Generator
from typing import Any

from tests.api.running import TIDEQ
from tests.client.commands import environ_for

PATIENCE_SECONDS = 120
STYLE = re.compile(r"\x1b\[[0-9;]*m")
HOME, TO_SCREEN, FROM_SCREEN, SHOW_CURSOR = "\x1b[H", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    def __init__(self, url: str, arguments: tuple[str, ...], size: tuple[int, int], environ: dict[str, str]) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(*size)
        self.before: list[Any] = termios.tcgetattr(self._theirs)
        self.seen = ""
        self.process = subprocess.Popen(
            [TIDEQ, *arguments],
            env=environ_for(url, TERM="xterm", **environ),
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
            # Its own controlling terminal, so that Ctrl-C typed there is a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    @property
    def attributes(self) -> list[Any]:
        """Echo, lines and special characters, as they are now."""
        return termios.tcgetattr(self._theirs)

    @property
    def screen(self) -> list[str]:
        """The last frame drawn, without its colours."""
        return STYLE.sub("", self.seen.rpartition(HOME)[2]).split("\r\n")

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.screen)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """The system tells the process, as a window would."""
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, text: str, *, is_there: bool = True) -> None:
        """Reads on until the screen shows it, or no longer does."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.shows(text) != is_there:
            assert self.process.poll() is None, self.seen
            assert time.monotonic() < deadline, "\n".join(self.screen)
            self._read(0.1)

    def until_size(self, columns: int, lines: int) -> None:
        """Reads on until a whole frame of this size was drawn."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (len(self.screen), max(map(len, self.screen))) != (lines, columns):
            assert time.monotonic() < deadline, "\n".join(self.screen)
            self._read(0.1)

    def end(self) -> int:
        """Its exit code, once it has ended by itself; what it said last was read."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self._read(0.1)
        self._read(0.0)
        return self.process.returncode

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for end in (self._ours, self._theirs):
            if end >= 0:
                os.close(end)

    def _read(self, seconds: float) -> None:
        while select.select([self._ours], [], [], seconds)[0]:
            self.seen += os.read(self._ours, 65_536).decode(errors="replace")
            seconds = 0.0


@contextlib.contextmanager
def at_terminal(url: str, *arguments: str, size: tuple[int, int] = (120, 40), **environ: str) -> Generator[Terminal]:
    terminal = Terminal(url, arguments, size, environ)
    try:
        yield terminal
    finally:
        terminal.close()
