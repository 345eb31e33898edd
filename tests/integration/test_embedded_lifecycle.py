"""The embedded servers from outside: what happens to them when the process that owns them ends."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from tideq.embedded import EmbeddedStores, OldServersStillRunning, RunningInstance, ServerTimeouts, find_running
from tideq.embedded.instance import read_note

REPOSITORY = Path(__file__).parents[2]
NOBODY = 65534
FROM_A_THREAD = """
import os, pathlib, sys, threading
from tideq.embedded import EmbeddedStores
stores = EmbeddedStores(pathlib.Path(sys.argv[1]), postgres=None)
starter = threading.Thread(target=stores.start)
starter.start()
starter.join()
while os.path.exists(f"/proc/self/task/{starter.native_id}"):
    pass
print("DATABASE_URL=", flush=True)
sys.stdin.read()
"""

WITHOUT_NAMESPACES = """
import pathlib, sys
from tideq.embedded import EmbeddedStores, PostgresOptions
options = PostgresOptions(unshare="/bin/false")
with EmbeddedStores(pathlib.Path(sys.argv[1]), valkey=None, postgres=options):
    print("DATABASE_URL=", flush=True)
    sys.stdin.read()
"""


def test_sigterm_stops_both_stores_and_exits_with_0(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        instance = wait_until_ready(process, tmp_path)

        process.terminate()

        assert process.wait(60) == 0
        assert not any(map(is_alive, instance.server_pids))
        assert "database system is shut down" in log(tmp_path, "postgres")
        assert "ready to exit, bye bye" in log(tmp_path, "valkey")


def test_sigterm_in_the_middle_of_the_first_start_leaves_nothing_half_made(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        read_until(process, "Creating the PostgreSQL database")
        eventually(lambda: any(tmp_path.glob("postgres*/base")))

        process.terminate()

        assert process.wait(60) == 0
    assert not (tmp_path / "postgres").exists()
    assert select_one(tmp_path) == 1


def test_after_kill_9_both_servers_end_cleanly_by_themselves(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        instance = wait_until_ready(process, tmp_path)

        process.kill()

        eventually(lambda: not any(map(is_alive, instance.server_pids)))
        assert "received fast shutdown request" in log(tmp_path, "postgres")
        assert "Received SIGTERM" in log(tmp_path, "valkey")


def test_after_kill_9_of_an_owner_that_started_them_in_a_thread_the_servers_end(tmp_path: Path) -> None:
    """The kernel's signal would come with the end of that thread; a watchdog stands in."""
    with owner(tmp_path, argv=(sys.executable, "-c", FROM_A_THREAD, str(tmp_path))) as process:
        instance = wait_until_ready(process, tmp_path)
        # An answer shows that the server has been through any signal sent before it.
        assert instance.redis_url is not None
        assert answers(instance.redis_url)
        assert "Received SIGTERM" not in log(tmp_path, "valkey")

        process.kill()

        eventually(lambda: not any(map(is_alive, instance.server_pids)))
        assert "Received SIGTERM" in log(tmp_path, "valkey")


def test_after_kill_9_a_postgres_that_runs_as_another_user_ends_too(folder_of_nobody: Path) -> None:
    """Becoming another user clears the kernel's promise, so it has to be asked for afterwards."""
    if not all(folder.stat().st_mode & 0o001 for folder in Path(psycopg.__file__).parents):
        pytest.skip("the virtual environment lies in a folder other users may not enter")
    argv = (sys.executable, "-c", WITHOUT_NAMESPACES, str(folder_of_nobody))
    with owner(folder_of_nobody, argv=argv) as process:
        instance = wait_until_ready(process, folder_of_nobody)
        assert Path(f"/proc/{instance.server_pids[0]}").stat().st_uid == NOBODY

        process.kill()

        eventually(lambda: not any(map(is_alive, instance.server_pids)))
        assert "received fast shutdown request" in log(folder_of_nobody, "postgres")


def test_started_again_right_after_kill_9_the_data_is_there(tmp_path: Path) -> None:
    with owner(tmp_path) as process:
        before = wait_until_ready(process, tmp_path)
        assert before.redis_url
        assert before.database_url
        connect(before.redis_url).set("greeting", "hello")
        with psycopg.connect(before.database_url) as connection:
            connection.execute("CREATE TABLE greeting AS SELECT 'hello' AS word")

        process.kill()
        with EmbeddedStores(tmp_path) as stores:
            assert connect(stores.redis_url).get("greeting") == b"hello"
            with psycopg.connect(stores.database_url) as connection:
                assert connection.execute("SELECT word FROM greeting").fetchall() == [("hello",)]
            assert not any(map(is_alive, before.server_pids))


def test_a_start_waits_for_the_old_servers_and_names_the_one_that_stays(tmp_path: Path) -> None:
    with owner(tmp_path, extra_environ={"DATABASE_URL": "postgresql://theirs"}) as process:
        instance = wait_until_ready(process, tmp_path)
        valkey_pid = instance.server_pids[0]
        keep_busy(instance.redis_url)
        process.kill()
        process.wait()

        with pytest.raises(OldServersStillRunning, match=str(valkey_pid)):
            EmbeddedStores(tmp_path, postgres=None, timeouts=ServerTimeouts(old_servers_ms=300)).start()
        said: list[str] = []

        def end_it_once_we_wait(line: str) -> None:
            said.append(line)
            if "Waiting" in line:
                os.kill(valkey_pid, signal.SIGKILL)

        with EmbeddedStores(tmp_path, postgres=None, on_progress=end_it_once_we_wait) as stores:
            assert connect(stores.redis_url).ping()

    assert said[0] == "Waiting for the servers of the last run to end"


def test_a_second_process_is_refused_naming_the_first(tmp_path: Path) -> None:
    with EmbeddedStores(tmp_path, postgres=None), owner(tmp_path) as second:
        _, complaint = second.communicate(timeout=60)

        assert second.returncode == 1
        assert f"in use by process {os.getpid()}" in complaint


def test_urls_in_the_environment_take_precedence(tmp_path: Path) -> None:
    theirs = {"REDIS_URL": "redis://theirs", "DATABASE_URL": "postgresql://theirs"}

    with owner(tmp_path, extra_environ=theirs) as process:
        instance = wait_until_ready(process, tmp_path)

    assert instance.server_pids == ()
    assert (instance.redis_url, instance.database_url) == tuple(theirs.values())


def test_an_ordinary_user_runs_both_stores(folder_of_nobody: Path) -> None:
    with owner(folder_of_nobody, argv=as_nobody(folder_of_nobody), user=NOBODY) as process:
        instance = wait_until_ready(process, folder_of_nobody)

        owners = {Path(f"/proc/{pid}").stat().st_uid for pid in instance.server_pids}
        process.terminate()

        assert owners == {NOBODY}
        assert process.wait(60) == 0


def test_an_ordinary_user_in_a_folder_of_root_is_told_what_to_do(folder_of_nobody: Path) -> None:
    os.chown(folder_of_nobody, 0, 0)

    with owner(folder_of_nobody, argv=as_nobody(folder_of_nobody), user=NOBODY) as process:
        _, complaint = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "Run as the user who owns it" in complaint
    assert "Traceback" not in complaint


@pytest.fixture
def folder_of_nobody() -> Iterator[Path]:
    """Not below tmp_path, which other users may not enter."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; the other tests are an ordinary user's already")
    with tempfile.TemporaryDirectory(prefix="tideq-test-", dir="/tmp") as folder:
        os.chown(folder, NOBODY, NOBODY)
        yield Path(folder)


def as_nobody(data_dir: Path) -> tuple[str, ...]:
    """With a Python that nobody may run: the one in use may lie in root's home."""
    for python in (sys.executable, "/usr/bin/python3"):
        if can_be_run_by_nobody(python):
            return (python, "-m", "tideq.embedded", "--data-dir", str(data_dir))
    pytest.skip("no Python that nobody may run can import tideq: the checkout lies in a closed folder")


def can_be_run_by_nobody(python: str) -> bool:
    probe = "import sys, msgspec, tideq.embedded.supervisor; assert sys.version_info >= (3, 11)"
    try:
        answer = subprocess.run(
            [python, "-c", probe], user=NOBODY, group=NOBODY, extra_groups=[], env=clean_environ(), cwd="/"
        )
    except PermissionError:
        return False
    return answer.returncode == 0


@contextmanager
def owner(
    data_dir: Path,
    *,
    argv: Sequence[str] = (),
    extra_environ: dict[str, str] | None = None,
    user: int | None = None,
) -> Generator[subprocess.Popen[str]]:
    """A process that runs the stores; its sockets go where a kill -9 leaves no litter."""
    with tempfile.TemporaryDirectory(prefix="tideq-test-", dir="/tmp", ignore_cleanup_errors=True) as run_dirs:
        Path(run_dirs).chmod(0o711)
        os.chown(run_dirs, -1 if user is None else user, -1)
        process = subprocess.Popen(
            argv or (sys.executable, "-m", "tideq.embedded", "--data-dir", str(data_dir)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environ() | {"TMPDIR": run_dirs} | (extra_environ or {}),
            cwd="/",
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=60)
            end_orphans(data_dir)


def end_orphans(data_dir: Path) -> None:
    """There are none unless a test has failed; then the machine should not keep them."""
    note = None if find_running(data_dir) else read_note(data_dir)
    for pid in note.server_pids if note else ():
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def clean_environ() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    packages = [path for path in sys.path if path.endswith("site-packages")]
    return kept | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *packages])}


def wait_until_ready(process: subprocess.Popen[str], data_dir: Path) -> RunningInstance:
    read_until(process, "DATABASE_URL=")
    instance = find_running(data_dir)
    assert instance is not None
    return instance


def read_until(process: subprocess.Popen[str], beginning: str) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return
    pytest.fail(f"the owner ended before it said {beginning!r}: {process.stderr.read()}")


def select_one(data_dir: Path) -> int:
    with EmbeddedStores(data_dir, valkey=None) as stores, psycopg.connect(stores.database_url) as connection:
        row = connection.execute("SELECT 1").fetchone()
    assert row is not None
    return row[0]


def connect(url: str) -> Any:
    return redis.Redis.from_url(url)  # pyright: ignore[reportUnknownMemberType]


def is_alive(pid: int) -> bool:
    """A zombie has ended: who collects orphans, and when, is up to the machine's process 1."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def keep_busy(url: str | None) -> None:
    """Inside a script a server does not act on SIGTERM. (SIGSTOP would not do: the kernel continues
    stopped processes when the owner's death orphans their group.)"""
    assert url is not None
    connection = connect(url).connection_pool.get_connection()
    connection.send_command("EVAL", "while true do end", 0)
    eventually(lambda: not answers(url))


def answers(url: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.1)
        client.connect(url.removeprefix("unix://"))
        client.sendall(b"PING\r\n")
        try:
            return bool(client.recv(16))
        except TimeoutError:
            return False


def log(data_dir: Path, server: str) -> str:
    return (data_dir / "logs" / f"{server}.log").read_text()


def eventually(condition: Callable[[], bool], within_ms: int = 10_000) -> None:
    deadline = time.monotonic() + within_ms / 1000
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
