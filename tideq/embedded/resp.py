"""A few words with the embedded Valkey over its own socket, without a driver: applications need none installed."""

import contextlib
import socket
from io import BufferedReader
from pathlib import Path
from typing import Self

TIMEOUT_SECONDS = 5.0


class RespError(Exception):
    """The server answered with an error."""


class RespConnection:
    """Connects when first asked and again after trouble; a connection that failed is never asked twice."""

    def __init__(self, socket_path: Path, name: str) -> None:
        self._socket_path = socket_path
        self._name = name
        self._line: _Line | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hang_up()

    def call(self, *words: str) -> str:
        try:
            return (self._line or self._connect()).ask(*words)
        except OSError:
            self._hang_up()
            raise

    def _connect(self) -> "_Line":
        self._line = line = _Line(self._socket_path)
        line.ask("CLIENT", "SETNAME", self._name)
        return line

    def _hang_up(self) -> None:
        if self._line:
            self._line.close()
        self._line = None


class _Line:
    def __init__(self, socket_path: Path) -> None:
        with contextlib.ExitStack() as undo:
            self._socket = undo.enter_context(socket.socket(socket.AF_UNIX))
            self._socket.settimeout(TIMEOUT_SECONDS)
            self._socket.connect(str(socket_path))
            self._answers: BufferedReader = undo.enter_context(self._socket.makefile("rb"))
            self._opened = undo.pop_all()

    def ask(self, *words: str) -> str:
        """No word has a space or a quote in it: the server takes them as they would be typed."""
        self._socket.sendall(" ".join(words).encode() + b"\r\n")
        first = self._answers.readline().decode()
        if not first.endswith("\n"):
            raise ConnectionError("Valkey closed the connection")
        kind, rest = first[0], first[1:].strip()
        if kind == "-":
            raise RespError(rest)
        return self._answers.read(int(rest) + 2).decode() if kind == "$" else rest

    def close(self) -> None:
        self._opened.close()
