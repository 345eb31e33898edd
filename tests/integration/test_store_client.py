"""Connections to the store: every caller gets its own reply, dead servers cost no caller more than the timeout."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as TooLate

from tests.api.proxy import proxying
from tests.kit import make_kit
from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey, find_running
from tideq.queue_core.background import loop_factory
from tideq.queue_core.store.connect import connect
from tideq.queue_core.store.store_client import drop_idle_connections
from tideq.queue_core.task import NewTask

SLOW = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i % 3 end return n"
CONNECTIONS_OF_CALLS = 8


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[EmbeddedStores]:
    with EmbeddedStores(tmp_path, valkey=ValkeyOptions(binary=bundled_valkey()), postgres=None) as stores:
        yield stores


@pytest.fixture
async def client(stores: EmbeddedStores) -> AsyncIterator[Any]:
    client: Any = connect(stores.redis_url)
    yield client
    await client.aclose()


def server_pid(data_dir: Path) -> int:
    running = find_running(data_dir)
    assert running is not None
    return running.server_pids[0]


async def opened_count(client: Any) -> int:
    """How many connections the server has accepted so far."""
    return (await client.info("stats"))["total_connections_received"]


async def test_concurrent_commands_get_their_own_replies(client: Any) -> None:
    replies = await asyncio.gather(*(client.echo(str(number)) for number in range(200)))

    assert replies == [str(number).encode() for number in range(200)]


async def test_concurrent_script_calls_share_a_few_connections(client: Any) -> None:
    kit = await make_kit(client, "default")
    await kit.worker()
    before = await opened_count(client)

    await asyncio.gather(*(kit.fleet.heartbeat("w1") for _ in range(100)))

    assert await opened_count(client) - before < CONNECTIONS_OF_CALLS


async def test_a_cancelled_command_leaves_no_reply_to_the_next_one(client: Any) -> None:
    async def echo(number: int) -> bytes:
        return await client.echo(str(number))

    await asyncio.gather(*(echo(number) for number in range(30)))
    for pauses in range(12):
        running = [asyncio.ensure_future(echo(number)) for number in range(30)]
        for _ in range(pauses):
            await asyncio.sleep(0)
        for each in running[::2]:
            each.cancel()

        assert await asyncio.gather(*running[1::2]) == [str(number).encode() for number in range(1, 30, 2)]
    assert await asyncio.gather(*map(echo, range(30))) == [str(number).encode() for number in range(30)]


async def test_a_refusal_concerns_one_command_only(client: Any) -> None:
    commands: tuple[tuple[str | int, ...], ...] = (("EVALSHA", "0" * 40, 0), ("ECHO", "a"), ("NONSENSE",), ("PING",))

    results = await asyncio.gather(*(client.execute_command(*words) for words in commands), return_exceptions=True)

    assert [type(each) for each in results] == [NoScriptError, bytes, ResponseError, bool]


async def test_a_dying_server_fails_running_commands_and_the_next_server_is_found(tmp_path: Path) -> None:
    options = ValkeyOptions(binary=bundled_valkey())
    with EmbeddedStores(tmp_path, valkey=options, postgres=None) as stores:
        client: Any = connect(stores.redis_url)
        await asyncio.gather(*(client.ping() for _ in range(10)))
        pid = server_pid(tmp_path)
        os.kill(pid, signal.SIGSTOP)
        running = [asyncio.ensure_future(client.ping()) for _ in range(10)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        results = await asyncio.gather(*running, return_exceptions=True)
        with pytest.raises(ConnectionLost):
            await client.ping()
    assert [type(each) for each in results] == [ConnectionLost] * 10

    with EmbeddedStores(tmp_path, valkey=options, postgres=None):
        assert await client.ping()
        await client.aclose()


async def test_a_silent_server_is_given_up_and_called_anew(tmp_path: Path, stores: EmbeddedStores) -> None:
    client: Any = connect(f"{stores.redis_url}?socket_timeout=0.2")
    await asyncio.gather(*(client.ping() for _ in range(3)))
    os.kill(server_pid(tmp_path), signal.SIGSTOP)
    try:
        results = await asyncio.gather(*(client.ping() for _ in range(3)), return_exceptions=True)
    finally:
        os.kill(server_pid(tmp_path), signal.SIGCONT)

    assert [type(each) for each in results] == [TooLate] * 3
    assert await client.ping()
    await client.aclose()


async def test_a_client_that_leaves_its_connections_still_gets_running_replies(client: Any) -> None:
    await client.ping()
    before = await opened_count(client)
    slow = asyncio.ensure_future(client.eval(SLOW, 0, 3_000_000))
    await asyncio.sleep(0)

    await drop_idle_connections(client)

    assert await client.ping()
    assert await slow > 0
    assert await opened_count(client) > before
    assert len(await client.client_list()) == 1


async def test_a_server_that_is_no_primary_any_more_is_left(client: Any) -> None:
    await client.ping()
    await client.execute_command("REPLICAOF", "127.0.0.1", 1)
    before = await opened_count(client)
    with pytest.raises(ReadOnlyError):
        await client.set("a", 1)
    await client.execute_command("REPLICAOF", "NO", "ONE")

    assert await client.set("a", 1)
    assert await opened_count(client) == before + 1


async def test_a_connection_that_the_server_closed_is_replaced_unnoticed(client: Any) -> None:
    kit = await make_kit(client, "default")
    await kit.submit()
    killer = client.client()
    await killer.client_kill_filter(_type="normal", skipme=True)
    await killer.aclose()

    for _ in range(3):
        await kit.submit()


def test_a_connection_that_was_reset_is_replaced_unnoticed_in_the_loop_of_services(stores: EmbeddedStores) -> None:
    async def work() -> None:
        async with proxying(stores.redis_url) as proxy:
            client: Any = connect(f"redis://127.0.0.1:{proxy.port}")
            await asyncio.gather(*(client.ping() for _ in range(3)))
            proxy.reset_all()
            await asyncio.sleep(0.1)

            assert all(await asyncio.gather(*(client.ping() for _ in range(3))))
            await client.aclose()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(work())


async def test_large_commands_and_replies_pass(client: Any) -> None:
    large = os.urandom(8 * 1024 * 1024)

    assert await asyncio.gather(*(client.echo(large) for _ in range(3))) == [large] * 3


async def test_closing_the_client_leaves_no_connection(stores: EmbeddedStores) -> None:
    watching: Any = connect(stores.redis_url)
    client: Any = connect(stores.redis_url)
    await asyncio.gather(*(client.ping() for _ in range(5)))
    await client.aclose()

    while len(await watching.client_list()) > 1:
        await asyncio.sleep(0.01)
    await watching.aclose()


async def test_a_command_that_a_silent_server_has_not_read_delays_no_other(
    tmp_path: Path, stores: EmbeddedStores
) -> None:
    client: Any = connect(f"{stores.redis_url}?socket_timeout=0.2")
    await client.ping()
    os.kill(server_pid(tmp_path), signal.SIGSTOP)

    try:
        with pytest.raises(TooLate):
            await client.echo(bytes(20_000_000))
        async with asyncio.timeout(4):
            with pytest.raises(RedisError):
                await client.ping()
    finally:
        os.kill(server_pid(tmp_path), signal.SIGCONT)
    while len(await client.client_list()) > 1:
        await asyncio.sleep(0.01)  # the server reads the rest of the large command before it sees the end
    await client.aclose()


async def test_a_heartbeat_beside_large_claims_is_answered_before_them(client: Any) -> None:
    kit = await make_kit(client, "default")
    await kit.worker(capacity=100)
    large = NewTask(task_type="t", parameters=b'{"pad":"' + b"x" * 250_000 + b'"}')
    for _ in range(3):
        await kit.queue.submit_many([large] * 12)
    answered: list[str] = []

    async def note(name: str, call: Awaitable[Any]) -> None:
        await call
        answered.append(name)

    await kit.queue.claim("w1", 5)
    await asyncio.gather(*(kit.fleet.heartbeat("w1") for _ in range(5)))  # opens the connections
    await asyncio.gather(
        *(note("claim", kit.queue.claim("w1", 30)) for _ in range(2)), note("heartbeat", kit.fleet.heartbeat("w1"))
    )

    assert answered == ["heartbeat", "claim", "claim"]


async def test_reads_of_many_tasks_come_in_several_replies(client: Any) -> None:
    kit = await make_kit(client, "default")
    ids = [await kit.submit() for _ in range(120)]
    before = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]

    found = await kit.queue.read_many(ids)

    assert [task and task.task_id for task in found] == ids
    assert (await client.info("commandstats"))["cmdstat_evalsha"]["calls"] - before >= 3
