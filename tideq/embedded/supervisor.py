"""Runs a Valkey and a PostgreSQL as child processes, with their data in one folder.

Does not handle signals (its owner does), does not restart a server that stops, and does not create tables. After a
kill -9 of the owner the servers end by themselves.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tideq.embedded.embedded_errors import DataDirUnusable, NotStarted
from tideq.embedded.environment import Progress, ServerEnvironment, ServerTimeouts
from tideq.embedded.instance import RunningInstance, remove_note, write_note
from tideq.embedded.lock import DataDirLock
from tideq.embedded.postgres import PostgresOptions, PostgresServer
from tideq.embedded.valkey import ValkeyOptions, ValkeyServer

Server = ValkeyServer | PostgresServer

DEFAULT_VALKEY = ValkeyOptions()
DEFAULT_POSTGRES = PostgresOptions()
DEFAULT_TIMEOUTS = ServerTimeouts()


def no_progress(_message: str) -> None:
    """The default: reports no progress."""


class EmbeddedStores:
    """Starts and stops the two stores. From the main thread the kernel ends the servers with this process.

    A store with a URL is not started; a store whose options are None is left out.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        valkey: ValkeyOptions | None = DEFAULT_VALKEY,
        postgres: PostgresOptions | None = DEFAULT_POSTGRES,
        redis_url: str | None = None,
        database_url: str | None = None,
        environ: Mapping[str, str] | None = None,
        timeouts: ServerTimeouts = DEFAULT_TIMEOUTS,
        on_progress: Progress = no_progress,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self._valkey_options = None if redis_url else valkey
        self._postgres_options = None if database_url else postgres
        self._urls = {"Valkey": redis_url, "PostgreSQL": database_url}
        self._environ = os.environ if environ is None else environ
        self._timeouts = timeouts
        self._on_progress = on_progress
        self._servers: list[Server] = []
        self._running = ExitStack()

    @property
    def redis_url(self) -> str:
        return self._url("Valkey")

    @property
    def database_url(self) -> str:
        return self._url("PostgreSQL")

    def start(self) -> None:
        """Starts all stores or none: after an error or an interrupt, the started ones are stopped again."""
        with ExitStack() as undo:
            environment = self._server_environment(self._own_data_dir(undo))
            if self._valkey_options:
                self._run(ValkeyServer(self._valkey_options, environment), undo)
            if self._postgres_options:
                self._run(PostgresServer(self._postgres_options, environment), undo)
            self._running = undo.pop_all()
        self._on_progress("The stores are ready")

    def stop(self) -> None:
        """Stops the stores in reverse order. Only the data, the logs and the lock files remain."""
        self._running.close()

    def check(self) -> None:
        """Raises ServerStopped when a server has ended by itself."""
        for server in self._servers:
            server.check()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def _own_data_dir(self, undo: ExitStack) -> DataDirLock:
        self._make_data_dir()
        lock = DataDirLock(self.data_dir, max_wait_ms=self._timeouts.old_servers_ms, on_progress=self._on_progress)
        lock.acquire()
        undo.callback(lock.release)
        undo.callback(remove_note, self.data_dir)
        self._leave_note()
        return lock

    def _make_data_dir(self) -> None:
        """Mode 0755, because PostgreSQL may run as another user; private files are in 0700 folders inside."""
        try:
            self.data_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirUnusable(self.data_dir, error) from error

    def _run(self, server: Server, undo: ExitStack) -> None:
        undo.callback(self._end, server)
        self._servers.append(server)
        server.start()
        self._urls[server.name] = server.url
        self._leave_note()

    def _end(self, server: Server) -> None:
        self._on_progress(f"Stopping {server.name}")
        server.stop()
        self._servers.remove(server)
        self._urls[server.name] = None

    def _server_environment(self, lock: DataDirLock) -> ServerEnvironment:
        return ServerEnvironment(
            data_dir=self.data_dir,
            environ=self._environ,
            servers_fd=lock.servers_fd,
            on_progress=self._on_progress,
            timeouts=self._timeouts,
        )

    def _leave_note(self) -> None:
        pids = tuple(pid for server in self._servers for pid in server.pids)
        urls = (self._urls["Valkey"], self._urls["PostgreSQL"])
        write_note(self.data_dir, RunningInstance(os.getpid(), *urls, pids))

    def _url(self, store: str) -> str:
        url = self._urls[store]
        if not url:
            raise NotStarted(store)
        return url
