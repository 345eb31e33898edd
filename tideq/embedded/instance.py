"""The note that a running instance writes into its data folder, so that the CLI finds its stores.

The note may be stale: only the lock shows whether its writer lives, so `find_running` checks the lock first. Other
processes, perhaps of another version, read the note: add optional fields, never rename one.
"""

import fcntl
import os
from pathlib import Path

import msgspec

NOTE_NAME = "instance.json"
LOCK_NAME = "instance.lock"


class RunningInstance(msgspec.Struct, frozen=True):
    pid: int
    redis_url: str | None = None
    database_url: str | None = None
    server_pids: tuple[int, ...] = ()


def find_running(data_dir: Path) -> RunningInstance | None:
    """The live instance that owns this data folder, or None."""
    return read_note(data_dir) if _is_owned(data_dir / LOCK_NAME) else None


def read_note(data_dir: Path) -> RunningInstance | None:
    try:
        return msgspec.json.decode((data_dir / NOTE_NAME).read_bytes(), type=RunningInstance)
    except (OSError, msgspec.MsgspecError):
        return None


def write_note(data_dir: Path, instance: RunningInstance) -> None:
    """Replaces the note atomically; mode 0600, because a URL may contain a password."""
    draft = data_dir / f"{NOTE_NAME}.new"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(instance))
    draft.replace(data_dir / NOTE_NAME)


def remove_note(data_dir: Path) -> None:
    (data_dir / NOTE_NAME).unlink(missing_ok=True)


def _is_owned(lock_path: Path) -> bool:
    try:
        fd = os.open(lock_path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
