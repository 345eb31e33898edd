"""Reads single keys from a terminal, and restores its settings however the command ends."""

import contextlib
import os
import select
import signal
import socket
import sys
import termios
import tty
from collections.abc import Generator
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
ESCAPES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b": "escape",
    b"\t": "tab",
}


class Ended(Exception):
    """A signal that ends the process arrived, or the terminal was closed."""

    def __init__(self, code: int) -> None:
        self.code = code


class KeyReader:
    """Waits for keys; other threads and signal handlers can wake it."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._wakeups, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def wake(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def wait(self, seconds: float) -> list[str]:
        """Returns the keys typed; an empty list after `wake` or at the end of the time."""
        readable, _, _ = select.select([self._terminal, self._wakeups], [], [], seconds)
        if self._wakeups in readable:
            self._wakeups.recv(4_096)
        if self._terminal not in readable:
            return []
        return keys_in(self._read())

    def close(self) -> None:
        self._wakeups.close()
        self._waker.close()

    def _read(self) -> bytes:
        try:
            typed = os.read(self._terminal, 1_024)
        except OSError:
            typed = b""
        if not typed:
            raise Ended(128 + signal.SIGHUP)
        return typed


def keys_in(typed: bytes) -> list[str]:
    """The keys in the bytes of one read; an escape sequence arrives in one piece, letters may arrive together. Pure."""
    if typed in ESCAPES:
        return [ESCAPES[typed]]
    found: list[str] = []
    while typed:
        name = next((sequence for sequence in ESCAPES if typed.startswith(sequence)), None)
        found.append(ESCAPES[name] if name else typed[:1].decode("latin-1"))
        typed = typed[len(name or b"?") :]
    return found


@contextlib.contextmanager
def open_terminal() -> Generator[KeyReader]:
    """Switches off line mode and echo. SIGTERM and SIGHUP raise `Ended`, so that the settings are restored."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    keys = KeyReader(terminal)
    handlers: dict[int, Any] = {number: signal.signal(number, _end) for number in STOP_SIGNALS}
    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, keys.wake)
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        _without_suspending(terminal)
        yield keys
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        keys.close()


def _without_suspending(terminal: int) -> None:
    """Disables Ctrl-Z, which would leave the shell with the alternate screen."""
    now = termios.tcgetattr(terminal)
    now[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(terminal, termios.TCSANOW, now)


def _end(number: int, _frame: FrameType | None) -> None:
    raise Ended(128 + number)
