"""The embedded Valkey's log: nothing acknowledged is lost by a kill, whatever its disk does, and all gets synced."""

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.chaos.shim import Shim
from tests.history.servers import Server
from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey
from tideq.embedded.aof_sync import AofSync

SLOW_MS = 30_000
WAIT_SECONDS = 30
NOBODY_SYNCS = ("--appendfsync", "no")
BY_ITSELF = ("--appendfsync", "everysec")


@pytest.fixture
def shim(tmp_path: Path) -> Shim:
    shim = Shim(tmp_path / "shim")
    if shim.missing:
        pytest.skip(shim.missing)
    return shim


@pytest.fixture
def start(tmp_path: Path, shim: Shim) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def started(*flags: str) -> Server:
        options = ValkeyOptions(binary=shim.binary, flags=flags)
        servers.append(Server(tmp_path / "store", valkey=options, postgres=None))
        servers[-1].start()
        return servers[-1]

    yield started
    shim.slow_disk(0)
    for server in servers:
        server.stop()


def test_a_kill_while_the_disk_is_slow_loses_nothing_acknowledged(start: Callable[..., Server], shim: Shim) -> None:
    assert lost_by_kill(start(), shim) == 0


def test_the_same_kill_loses_writes_of_a_server_that_syncs_by_itself(start: Callable[..., Server], shim: Shim) -> None:
    """So the test above does make the disk slow. A server that stalled for two seconds loses nothing: try again."""
    server = start(*BY_ITSELF)

    assert any(lost_by_kill(server, shim) for _ in range(5))


def lost_by_kill(server: Server, shim: Shim) -> int:
    """Of what was acknowledged while a sync was under way, before and after a rewrite of the log."""
    with client_of(server) as client:
        write(client, 100)
        client.execute_command("BGREWRITEAOF")
        until(lambda: is_at_rest(client))
        shim.slow_disk(SLOW_MS)
        until(lambda: write(client, 10) and (client.info("persistence")["aof_pending_bio_fsync"] or not syncs(client)))
        acknowledged = write(client, 2_000)
        server.kill()
    shim.slow_disk(0)
    server.start()
    with client_of(server) as client:
        return acknowledged - int(client.get("count"))


def test_who_waits_for_the_disk_is_answered_and_the_server_is_left_as_it_was(start: Callable[..., Server]) -> None:
    with client_of(start()) as client:
        for _ in range(2):
            write(client, 1)
            assert client.execute_command("WAITAOF", 1, 0, WAIT_SECONDS * 1000) == [1, 0]

        until(lambda: not syncs(client))


def test_who_waits_for_a_full_disk_is_not_answered_and_the_server_lives(
    start: Callable[..., Server], shim: Shim
) -> None:
    with client_of(start()) as client:
        shim.fill_disk(True)
        write(client, 1)
        until(lambda: client.info("persistence")["aof_last_write_status"] == "err")

        assert client.execute_command("WAITAOF", 1, 0, 2_500) == [0, 0]

        shim.fill_disk(False)
        until(lambda: client.info("persistence")["aof_last_write_status"] == "ok")
        write(client, 1)
        assert client.execute_command("WAITAOF", 1, 0, WAIT_SECONDS * 1000) == [1, 0]


def test_the_log_is_synced_again_and_again_and_so_is_the_one_that_follows_it(tmp_path: Path) -> None:
    synced: list[str] = []
    with unkept(tmp_path) as (stores, client), keeping(stores, lambda fd: synced.append(name_of(fd))):
        until(lambda: synced.count("appendonly.aof.1.incr.aof") >= 2)
        client.execute_command("BGREWRITEAOF")
        until(lambda: "appendonly.aof.2.incr.aof" in synced)
        until(lambda: is_at_rest(client))
        write(client, 1)
        seen = len(synced)
        until(lambda: "appendonly.aof.2.incr.aof" in synced[seen:])


def test_a_log_that_cannot_be_synced_is_left_to_the_server(tmp_path: Path) -> None:
    said: list[str] = []

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    with unkept(tmp_path) as (stores, client), keeping(stores, fail, said.append):
        until(lambda: client.config_get("appendfsync") == {"appendfsync": "everysec"})
        assert said == ["Cannot sync Valkey's log ([Errno 5] Input/output error); Valkey now syncs it itself"]


@contextmanager
def unkept(folder: Path) -> Generator[tuple[EmbeddedStores, Any]]:
    options = ValkeyOptions(binary=bundled_valkey(), flags=NOBODY_SYNCS)
    with EmbeddedStores(folder, valkey=options, postgres=None) as stores, client_of(stores) as client:
        yield stores, client


@contextmanager
def keeping(
    stores: EmbeddedStores, sync: Callable[[int], None], on_progress: Callable[[str], None] = lambda _: None
) -> Generator[None]:
    socket_path = Path(stores.redis_url.removeprefix("unix://"))
    keeper = AofSync(stores.data_dir / "valkey", socket_path, on_progress, sync)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


@contextmanager
def client_of(server: Server | EmbeddedStores) -> Generator[Any]:
    driver: Any = redis.Redis
    with closing(driver.from_url(server.redis_url)) as client:
        yield client


def write(client: Any, count: int) -> int:
    """What the last of them was acknowledged with."""
    pipeline = client.pipeline(transaction=False)
    for _ in range(count):
        pipeline.incr("count")
    return pipeline.execute()[-1]


def syncs(client: Any) -> bool:
    return client.config_get("appendfsync") != {"appendfsync": "no"}


def is_at_rest(client: Any) -> bool:
    info = client.info("persistence")
    return not info["aof_rewrite_in_progress"] and not info["aof_pending_bio_fsync"]


def name_of(descriptor: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name


def until(condition: Callable[[], object]) -> None:
    waiting = threading.Event()
    for _ in range(WAIT_SECONDS * 100):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come to that")
