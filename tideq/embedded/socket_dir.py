"""The short, private folder a server puts its socket in.

Data folders may lie deep, and the path of a Unix socket may have 107 bytes at most, so sockets
live elsewhere. Does not promise a stable path across users or runs: ask the instance note.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tideq.embedded.errors import UnsafeRunDirectory
from tideq.embedded.identity import Account

MAX_SOCKET_PATH_BYTES = 107
LONGEST_SOCKET_NAME = ".s.PGSQL.5432"


def make_run_dir(data_dir: Path, server: str, environ: Mapping[str, str], owner: Account | None) -> Path:
    """A fresh 0700 folder. The caller holds the data folder's lock, so what is there is a dead run's."""
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
    """In a shared /tmp anyone may have made our name first: touch only what is ours."""
    try:
        owner_uid = path.lstat().st_uid
    except FileNotFoundError:
        return
    if os.geteuid() not in (0, owner_uid):
        raise UnsafeRunDirectory(path, f"it belongs to user {owner_uid}")
    # rmtree refuses a link, so even as root a planted one deletes nothing.
    shutil.rmtree(path, ignore_errors=True)


def _base(name: str, environ: Mapping[str, str], owner: Account | None) -> Path:
    # XDG_RUNTIME_DIR is closed to every user but ours, so a server with its own account cannot enter it.
    variables = ("TMPDIR",) if owner else ("XDG_RUNTIME_DIR", "TMPDIR")
    for variable in variables:
        folder = Path(environ.get(variable) or "/nonexistent")
        if folder.is_absolute() and folder.is_dir() and os.access(folder, os.W_OK) and _fits(folder / name):
            return folder / name
    return Path("/tmp") / name  # noqa: S108 - safe: made 0700 and refused when it is not ours


def _fits(path: Path) -> bool:
    return len(os.fsencode(path / LONGEST_SOCKET_NAME)) <= MAX_SOCKET_PATH_BYTES
