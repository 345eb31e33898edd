"""Every kind of store URL leads to a working queue: plain, unix, TLS, Sentinel, Cluster."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.failover.group import SentinelGroup
from tests.kit import make_kit
from tests.stores import STORES, StoreUnderTest, free_port, missing
from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey
from tideq.queue_core.background import loop_factory
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.store.connect import StoreUrlError, connect, connect_listener

WAIT_SECONDS = 90
PLAIN = {"bind": "127.0.0.1", "save": "", "repl-diskless-sync-delay": "0"}


@contextlib.contextmanager
def server(
    folder: Path, binary: Path | None = None, port: int | None = None, flags: tuple[str, ...] = ()
) -> Generator[EmbeddedStores]:
    options = ValkeyOptions(binary or bundled_valkey(), port, flags)
    with EmbeddedStores(folder, valkey=options, postgres=None) as stores:
        yield stores


async def use(url: str, queue_name: str = "urls") -> None:
    """A task's whole life, and one notification."""
    client, listener = connect(url), connect_listener(url)
    try:
        kit = await make_kit(client, queue_name)
        async with listener.pubsub() as subscription:
            await subscription.subscribe(kit.keys.wake_channel)
            await kit.worker()
            assert not (await kit.queue.claim("w1")).tasks  # from here on somebody waits
            await kit.submit()
            held = await kit.started()
            assert await kit.complete(held) == "completed"
            assert await _first_message(subscription)
    finally:
        await client.aclose()
        await listener.aclose()


def run_as_services_do(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work)


async def _first_message(subscription: Any) -> str:
    while True:
        message = await subscription.get_message(timeout=WAIT_SECONDS)
        if message and message["type"] == "message":
            return message["data"].decode()


async def test_a_plain_url_leads_to_a_queue(tmp_path: Path) -> None:
    with server(tmp_path, port=free_port()) as stores:
        assert stores.redis_url.startswith("redis://")
        await use(stores.redis_url)


async def test_a_unix_socket_url_leads_to_a_queue(tmp_path: Path) -> None:
    with server(tmp_path) as stores:
        assert stores.redis_url.startswith("unix://")
        await use(stores.redis_url)


async def test_a_url_with_a_password_leads_to_a_queue(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path, port=port, flags=("--requirepass", "se:cret")):
        await use(f"redis://:se%3Acret@127.0.0.1:{port}/0")


async def test_a_cluster_url_leads_to_a_queue(running_stores: Callable[[str], StoreUnderTest]) -> None:
    await use(running_stores("cluster").url)


@pytest.fixture(scope="module")
def tls_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's server: the wheel's is built without TLS."""
    if reason := missing("redis7"):
        pytest.skip(reason)
    folder, port = tmp_path_factory.mktemp("tls"), free_port()
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    flags = {
        "tls-port": port,
        "tls-cert-file": folder / "cert.pem",
        "tls-key-file": folder / "key.pem",
        "tls-ca-cert-file": folder / "ca.pem",
        "tls-auth-clients": "no",
    }
    words = tuple(str(word) for name, value in flags.items() for word in (f"--{name}", value))
    with server(folder / "data", binary=Path(shutil.which("redis-server") or ""), flags=words):
        yield f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={folder / 'ca.pem'}"


async def test_a_tls_url_leads_to_a_queue(tls_url: str) -> None:
    await use(tls_url)


@pytest.mark.parametrize("kind", ["plain", "unix", "tls"])
def test_the_loop_of_services_leads_there_too(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Its connections are its own, and change hands in their own way."""
    if kind == "tls":
        run_as_services_do(use(request.getfixturevalue("tls_url"), "services"))
        return
    port = free_port() if kind == "plain" else None
    with server(tmp_path, port=port) as stores:
        run_as_services_do(use(stores.redis_url))


async def test_a_tls_url_without_its_authority_is_refused(tls_url: str) -> None:
    client = connect(tls_url.partition("?")[0])
    with pytest.raises(StoreUnavailable):
        await make_kit(client, "urls")
    await client.aclose()


@pytest.fixture
async def sentinel_group(tmp_path: Path) -> AsyncIterator[SentinelGroup]:
    group = SentinelGroup(tmp_path, replicas=1, server=PLAIN)
    yield group
    group.stop()


async def test_a_sentinel_url_leads_to_the_primary_and_follows_a_fail_over(sentinel_group: SentinelGroup) -> None:
    client = connect(sentinel_group.url)
    kit = await make_kit(client, "urls")
    task_id = await kit.submit()
    assert await client.wait(1, 5_000) == 1

    sentinel_group.kill_primary()

    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            found = await kit.read(task_id)
            break
        except StoreUnavailable:
            assert time.monotonic() < deadline
    await kit.submit()
    assert found.task_id == task_id
    await client.aclose()


async def test_a_primary_that_became_a_replica_is_left_and_did_nothing(sentinel_group: SentinelGroup) -> None:
    client = connect(sentinel_group.url)
    kit = await make_kit(client, "urls")
    own = await client.client_id()
    await client.execute_command("REPLICAOF", "127.0.0.1", sentinel_group.replicas[0])

    with pytest.raises(StoreUnavailable) as caught:
        await kit.submit()

    assert caught.value.is_untouched
    assert await client.client_id() != own
    await client.aclose()


async def test_a_store_that_is_away_is_said_to_be_unavailable() -> None:
    client = connect(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(StoreUnavailable):
        await make_kit(client, "urls")
    await client.aclose()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://localhost", "scheme 'http'"),
        ("localhost:6379", "scheme 'localhost'"),
        ("redis+sentinel://localhost:26379", "service's name"),
        ("redis+cluster://localhost:port", "not host:port"),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_wrong(url: str, words: str) -> None:
    with pytest.raises(StoreUrlError, match=words):
        connect(url)


def test_every_store_of_the_contract_suite_is_known_here() -> None:
    assert set(STORES) == {"valkey", "redis7", "cluster", "four_partitions", "fakeredis"}
