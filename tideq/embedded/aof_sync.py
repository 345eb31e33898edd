"""Syncs the append-only file of the embedded Valkey to disk once a second, in place of the server.

With `appendfsync everysec` a server delays its writes while a sync is running, but acknowledges them: a kill at that
moment loses acknowledged writes. With `no` each write is in the kernel before it is acknowledged, so a kill loses
nothing, and this process syncs the file: the kernel writes its pages, no matter which process wrote them. Rewrites are
synced by the server itself, with every value of `appendfsync`.

The server answers WAITAOF only after a sync of its own. While a client waits for one, `appendfsync` is `always` for a
moment: that loses no writes either, and few pages are left to sync. If this process cannot sync the file, it sets
`everysec`; the server refuses writes if its own sync fails too.

A power cut may lose the last second of writes. A server with a password is synced, but WAITAOF is not answered.
"""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tideq.embedded.environment import Progress
from tideq.embedded.resp import RespConnection, RespError

PERIOD_SECONDS = 1.0
STOP_SECONDS = 5.0
CONNECTION_NAME = "tideq-aof-sync"
"""The name of this connection in CLIENT LIST; `tideq doctor` searches for it."""
LOGS = "appendonlydir/*.incr.aof"
LEAVE_TO_KERNEL, AFTER_EACH_WRITE, EACH_SECOND = "no", "always", "everysec"

Sync = Callable[[int], None]
SYNC: Sync = os.fdatasync if sys.platform == "linux" else os.fsync


class AofSync:
    """A thread that runs from when the server is ready until it is stopped."""

    def __init__(self, data: Path, socket_path: Path, on_progress: Progress, sync: Sync = SYNC) -> None:
        self._data = data
        self._connection = RespConnection(socket_path, CONNECTION_NAME)
        self._on_progress = on_progress
        self._sync = sync
        self._may_be_always = False
        """Whether `appendfsync` may still be `always`, because the answer to a CONFIG SET was lost."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=CONNECTION_NAME, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Call this before the server is stopped, which syncs its log itself. Does not wait for a sync that hangs."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        with self._connection:
            try:
                self._sync_until_stopped()
            except OSError as error:
                self._on_progress(f"Cannot sync Valkey's log ({error}); Valkey now syncs it itself")
                self._leave_to_server()

    def _sync_until_stopped(self) -> None:
        while not self._stopping.wait(PERIOD_SECONDS):
            self._sync_logs()
            with suppress(OSError, RespError):
                self._serve_waitaof()

    def _sync_logs(self) -> None:
        """Opens the files each time, because a rewrite replaces the log and may remove a file during the search."""
        for path in self._data.glob(LOGS):
            with suppress(FileNotFoundError), path.open("rb") as log:
                self._sync(log.fileno())

    def _serve_waitaof(self) -> None:
        if self._has_waitaof():
            self._may_be_always = True
            self._set(AFTER_EACH_WRITE)
        if self._may_be_always:
            self._set(LEAVE_TO_KERNEL)
            self._may_be_always = False

    def _has_waitaof(self) -> bool:
        """Whether a client waits in WAITAOF; False while the disk is full, when a server with `always` would exit."""
        if "cmd=waitaof" not in self._connection.call("CLIENT", "LIST"):
            return False
        return "aof_last_write_status:ok" in self._connection.call("INFO", "persistence")

    def _leave_to_server(self) -> None:
        is_set = False
        while not is_set and not self._stopping.is_set():
            with suppress(OSError, RespError):
                self._set(EACH_SECOND)
                is_set = True
            self._stopping.wait(PERIOD_SECONDS)

    def _set(self, policy: str) -> None:
        self._connection.call("CONFIG", "SET", "appendfsync", policy)
