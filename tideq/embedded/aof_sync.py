"""Brings what the embedded Valkey wrote to disk once a second, so that the server need not.

With `appendfsync everysec` a server puts off writing, and not only syncing, while a sync is under way, and acknowledges
all the same: killed then, it has lost what it acknowledged. With `no` every write is with the kernel before its answer
is sent, and a kill loses nothing. The kernel's pages are synced from here, for it takes them to disk whoever wrote
them. Rewrites are the server's own affair: it syncs base files, manifests and the log it leaves, whatever it was told.

WAITAOF is only answered after a sync by the server itself. So while somebody waits for one it is set to `always` for a
moment: that loses nothing either, and little is left to sync. A log that cannot be synced from here is left to the
server (`everysec`), which refuses writes when it fails too.

Does not promise the last second of writes after a power cut. Does not know a password: such a server is synced, but
WAITAOF is not answered.
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
CONNECTION_NAME = "tideq-log-keeper"
"""What its connection is called; `tideq doctor` looks for it."""
LOGS = "appendonlydir/*.incr.aof"
LEAVE_TO_KERNEL, AFTER_EACH_WRITE, EACH_SECOND = "no", "always", "everysec"

Sync = Callable[[int], None]
SYNC: Sync = os.fdatasync if sys.platform == "linux" else os.fsync


class AofSync:
    """A thread beside the server, from when it is ready until it is stopped."""

    def __init__(self, data: Path, socket_path: Path, on_progress: Progress, sync: Sync = SYNC) -> None:
        self._data = data
        self._console = RespConnection(socket_path, CONNECTION_NAME)
        self._on_progress = on_progress
        self._sync = sync
        self._is_lent = False
        """Whether the server may still be set to `always`: an answer was lost."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=CONNECTION_NAME, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Before the server, which syncs its log itself when it ends. A sync that hangs is left behind."""
        self._is_over.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        with self._console:
            try:
                self._keep()
            except OSError as error:
                self._on_progress(f"Cannot sync Valkey's log ({error}): left to Valkey")
                self._leave_to_server()

    def _keep(self) -> None:
        while not self._is_over.wait(PERIOD_SECONDS):
            self._sync_logs()
            with suppress(OSError, RespError):
                self._answer_waiting()

    def _sync_logs(self) -> None:
        """Opened anew each time: a rewrite replaces the log, and may remove one while it is looked for."""
        for path in self._data.glob(LOGS):
            with suppress(FileNotFoundError), path.open("rb") as log:
                self._sync(log.fileno())

    def _answer_waiting(self) -> None:
        if self._is_awaited():
            self._is_lent = True
            self._set(AFTER_EACH_WRITE)
        if self._is_lent:
            self._set(LEAVE_TO_KERNEL)
            self._is_lent = False

    def _is_awaited(self) -> bool:
        """Never while the disk is full: with `always` a server that cannot write ends itself."""
        if "cmd=waitaof" not in self._console.call("CLIENT", "LIST"):
            return False
        return "aof_last_write_status:ok" in self._console.call("INFO", "persistence")

    def _leave_to_server(self) -> None:
        is_left = False
        while not is_left and not self._is_over.is_set():
            with suppress(OSError, RespError):
                self._set(EACH_SECOND)
                is_left = True
            self._is_over.wait(PERIOD_SECONDS)

    def _set(self, policy: str) -> None:
        self._console.call("CONFIG", "SET", "appendfsync", policy)
