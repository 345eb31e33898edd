"""Guarantees one instance per data folder with two locks, one for the owner and one for its servers.

The owner's lock is released when the owner ends. The servers' lock is an open file that every server inherits, so
after a kill -9 of the owner it stays locked until the last server has ended. An owner's lock that is held means a live
instance: refuse at once. If only the servers' lock is held: wait.

Does not work on file systems without flock inheritance (NFS). Never delete a lock file: a second owner could start.
"""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tideq.embedded.embedded_errors import AlreadyRunning, DataDirUnusable, OldServersStillRunning
from tideq.embedded.instance import LOCK_NAME, read_note

SERVERS_LOCK_NAME = "servers.lock"
# `find_running` holds the owner's lock for microseconds; that must not look like a live instance.
PROBE_GRACE_MS = 200
POLL_MS = 10


class DataDirLock:
    def __init__(self, data_dir: Path, *, max_wait_ms: int, on_progress: Callable[[str], None]) -> None:
        self._data_dir = data_dir
        self._max_wait_ms = max_wait_ms
        self._on_progress = on_progress
        self._held = ExitStack()
        self.servers_fd = -1

    def acquire(self) -> None:
        with ExitStack() as undo:
            self._own(undo)
            self.servers_fd = self._await_old_servers(undo)
            self._held = undo.pop_all()

    def release(self) -> None:
        self._held.close()
        self.servers_fd = -1

    def _own(self, undo: ExitStack) -> None:
        fd = self._open(LOCK_NAME, undo)
        if not _lock_within(fd, PROBE_GRACE_MS):
            note = read_note(self._data_dir)
            raise AlreadyRunning(self._data_dir, note.pid if note else None)

    def _await_old_servers(self, undo: ExitStack) -> int:
        fd = self._open(SERVERS_LOCK_NAME, undo)
        if _lock_within(fd, 0):
            return fd
        self._on_progress("Waiting for the servers of the last run to end")
        if not _lock_within(fd, self._max_wait_ms):
            note = read_note(self._data_dir)
            raise OldServersStillRunning(self._data_dir, self._max_wait_ms, note.server_pids if note else ())
        return fd

    def _open(self, name: str, undo: ExitStack) -> int:
        try:
            fd = os.open(self._data_dir / name, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataDirUnusable(self._data_dir, error) from error
        undo.callback(os.close, fd)
        return fd


def _lock_within(fd: int, wait_ms: int) -> bool:
    deadline = time.monotonic() + wait_ms / 1000
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_MS / 1000)
        else:
            return True
