"""The environment of an embedded server: its folder, lock file, timeouts and environment variables.

The supervisor owns all of it: it holds the lock and removes the files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ServerTimeouts:
    start_ms: int = 300_000
    """Long, because loading a large append-only file takes minutes."""
    stop_ms: int = 30_000
    """For each stop signal, before the next one is sent."""
    old_servers_ms: int = 60_000
    """For the servers of a killed run to end."""


@dataclass(frozen=True)
class ServerEnvironment:
    data_dir: Path
    environ: Mapping[str, str]
    servers_fd: int
    """The open lock file every server inherits; see `lock.py`."""
    on_progress: Progress
    timeouts: ServerTimeouts

    def log_path(self, server: str) -> Path:
        return self.data_dir / "logs" / f"{server}.log"

    def server_environ(self) -> dict[str, str]:
        """Only the variables that programs need: no secrets, and no PGPORT that would redirect PostgreSQL."""
        kept = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
        return {name: self.environ[name] for name in kept if name in self.environ} | {
            "LC_ALL": "C",
            "TZ": "UTC",
        }
