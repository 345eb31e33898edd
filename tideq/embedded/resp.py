"""Sends a few commands to the embedded Valkey over its Unix socket, without a Redis driver installed."""

import contextlib
import socket
from io import BufferedReader
from pathlib import Path
from typing import Self

TIMEOUT_SECONDS = 5.0


class RespError(Exception):
    """The server answered with an error."""


class RespConnection:
    """Connects at the first call, and again after a connection error."""

    def __init__(self, socket_path: Path, name: str) -> None:
        self._socket_path = socket_path
        self._name = name
        self._socket: _Socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()

    def call(self, *words: str) -> str:
        """Returns the reply; raises RespError for an error reply, OSError for a lost connection."""
        try:
            return (self._socket or self._connect()).call(*words)
        except OSError:
            self._disconnect()
            raise

    def _connect(self) -> "_Socket":
        self._socket = connected = _Socket(self._socket_path)
        connected.call("CLIENT", "SETNAME", self._name)
        return connected

    def _disconnect(self) -> None:
        if self._socket:
            self._socket.close()
        self._socket = None


class _Socket:
    def __init__(self, socket_path: Path) -> None:
        with contextlib.ExitStack() as undo:
            self._socket = undo.enter_context(socket.socket(socket.AF_UNIX))
            self._socket.settimeout(TIMEOUT_SECONDS)
            self._socket.connect(str(socket_path))
            self._answers: BufferedReader = undo.enter_context(self._socket.makefile("rb"))
            self._opened = undo.pop_all()

    def call(self, *words: str) -> str:
        """Sends an inline command, so no word may contain a space or a quote."""
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
