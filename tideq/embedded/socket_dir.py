"""Creates the short, private folder for a server's Unix socket.

The path of a Unix socket may have 107 bytes at most, and data folders may have longer paths, so sockets are elsewhere.
The path differs between users and runs; the instance note has the current one.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tideq.embedded.embedded_errors import UnsafeRunDirectory
from tideq.embedded.identity import Account

MAX_SOCKET_PATH_BYTES = 107
LONGEST_SOCKET_NAME = ".s.PGSQL.5432"


def make_run_dir(data_dir: Path, server: str, environ: Mapping[str, str], owner: Account | None) -> Path:
    """A new 0700 folder. The caller has the data folder's lock, so an existing folder is left from a dead run."""
    digest = hashlib.sha256(f"{os.geteuid()}:{data_dir}".encode()).hexdigest()[:12]
    path = _base(f"tideq-{digest}-{server}", environ, owner)
    remove_run_dir(path)
    try:
        path.mkdir(mode=0o700)
    except OSError as error:
        raise UnsafeRunDirectory(path, str(error)) from error
    if owner:
        os.chown(path, owner.uid, owner.gid)
    return path


def remove_run_dir(path: Path) -> None:
    """Raises UnsafeRunDirectory for another user's folder: in a shared /tmp any user may have created this name."""
    try:
        owner_uid = path.lstat().st_uid
    except FileNotFoundError:
        return
    if os.geteuid() not in (0, owner_uid):
        raise UnsafeRunDirectory(path, f"it belongs to user {owner_uid}")
    # rmtree refuses a symbolic link, so a link planted for root deletes nothing.
    shutil.rmtree(path, ignore_errors=True)


def _base(name: str, environ: Mapping[str, str], owner: Account | None) -> Path:
    # Only this user can enter XDG_RUNTIME_DIR, so a server with its own account cannot use it.
    variables = ("TMPDIR",) if owner else ("XDG_RUNTIME_DIR", "TMPDIR")
    for variable in variables:
        folder = Path(environ.get(variable) or "/nonexistent")
        if folder.is_absolute() and folder.is_dir() and os.access(folder, os.W_OK) and _fits(folder / name):
            return folder / name
    return Path("/tmp") / name  # noqa: S108 - safe: created with 0700, refused when another user owns it


def _fits(path: Path) -> bool:
    return len(os.fsencode(path / LONGEST_SOCKET_NAME)) <= MAX_SOCKET_PATH_BYTES
