"""What every embedded server needs to know about the place it runs in.

Does not own any of it: the supervisor holds the lock and removes the files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ServerTimeouts:
    start_ms: int = 300_000
    """Long, because reading back a large append-only file is not a failure."""
    stop_ms: int = 30_000
    """For each signal, before the next and harder one."""
    old_servers_ms: int = 60_000
    """For the servers of a run that was killed."""


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
        """Only what programs need: no secrets of ours, no PGPORT that would redirect PostgreSQL."""
        kept = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")
        return {name: self.environ[name] for name in kept if name in self.environ} | {
            "LC_ALL": "C",
            "TZ": "UTC",
        }
