"""The connection that script calls share: answers find who asked, and nobody waits for one that does not come."""

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

from tests.kit import make_kit
from tideq.embedded import EmbeddedStores, ValkeyOptions, bundled_valkey, find_running
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.store.connect import connect
from tideq.queue_core.store.reconnecting import drop_idle_connections
from tideq.queue_core.task import NewTask

SLEEP = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i % 3 end return n"


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
    """How many connections the server has taken so far."""
    return (await client.info("stats"))["total_connections_received"]


async def test_answers_go_to_those_who_asked(client: Any) -> None:
    answers = await asyncio.gather(*(client.ask("ECHO", str(number)) for number in range(1_000)))

    assert answers == [str(number).encode() for number in range(1_000)]


async def test_all_of_them_share_one_connection(client: Any) -> None:
    before = await opened_count(client)

    await asyncio.gather(*(client.ask("PING") for _ in range(100)))

    assert await opened_count(client) == before + 1


async def test_who_does_not_wait_any_more_leaves_the_others_their_answers(client: Any) -> None:
    async def echo(number: int) -> bytes:
        return await client.ask("ECHO", str(number))

    await echo(0)
    asking = [asyncio.ensure_future(echo(number)) for number in range(30)]
    await asyncio.sleep(0)
    for each in asking[::2]:
        each.cancel()

    assert await asyncio.gather(*asking[1::2]) == [str(number).encode() for number in range(1, 30, 2)]
    assert await echo(7) == b"7"


async def test_a_refusal_is_one_commands_own(client: Any) -> None:
    commands: tuple[tuple[str | int, ...], ...] = (("EVALSHA", "0" * 40, 0), ("ECHO", "a"), ("NONSENSE",), ("PING",))

    told = list[Any](await asyncio.gather(*(client.ask(*words) for words in commands), return_exceptions=True))

    assert [type(each) for each in told] == [NoScriptError, bytes, ResponseError, bytes]
    assert told[1::2] == [b"a", b"PONG"]


async def test_a_server_that_dies_fails_all_that_was_asked_and_the_next_is_found(tmp_path: Path) -> None:
    options = ValkeyOptions(binary=bundled_valkey())
    with EmbeddedStores(tmp_path, valkey=options, postgres=None) as stores:
        client: Any = connect(stores.redis_url)
        await client.ask("PING")
        pid = server_pid(tmp_path)
        os.kill(pid, signal.SIGSTOP)
        asking = [asyncio.ensure_future(client.ask("PING")) for _ in range(10)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        told = await asyncio.gather(*asking, return_exceptions=True)
        with pytest.raises(ConnectionLost):
            await client.ask("PING")
    assert [type(each) for each in told] == [ConnectionLost] * 10

    with EmbeddedStores(tmp_path, valkey=options, postgres=None):
        assert await client.ask("PING") == b"PONG"
        await client.aclose()


async def test_a_server_that_is_silent_is_given_up_and_asked_anew(tmp_path: Path, stores: EmbeddedStores) -> None:
    client: Any = connect(stores.redis_url)
    client.connection_pool.connection_kwargs["socket_timeout"] = 0.2
    await client.ask("PING")
    os.kill(server_pid(tmp_path), signal.SIGSTOP)
    try:
        told = await asyncio.gather(*(client.ask("PING") for _ in range(3)), return_exceptions=True)
    finally:
        os.kill(server_pid(tmp_path), signal.SIGCONT)

    assert [type(each) for each in told] == [TooLate] * 3
    client.connection_pool.connection_kwargs["socket_timeout"] = 60
    assert await client.ask("PING") == b"PONG"
    await client.aclose()


async def test_a_line_that_is_renewed_still_answers_what_was_asked(client: Any) -> None:
    await client.ask("PING")
    before = await opened_count(client)
    slow = asyncio.ensure_future(client.ask("EVAL", SLEEP, 0, 3_000_000))
    await asyncio.sleep(0)

    await drop_idle_connections(client)

    assert await client.ask("PING") == b"PONG"
    assert await slow > 0
    assert await opened_count(client) > before


async def test_one_that_is_no_primary_any_more_is_left(client: Any) -> None:
    await client.ask("PING")
    await client.execute_command("REPLICAOF", "127.0.0.1", 1)
    before = await opened_count(client)
    with pytest.raises(ReadOnlyError):
        await client.ask("SET", "a", 1)
    await client.execute_command("REPLICAOF", "NO", "ONE")

    assert await client.ask("SET", "a", 1) == b"OK"
    assert await opened_count(client) == before + 1


async def test_a_connection_the_server_closes_is_replaced(client: Any) -> None:
    kit = await make_kit(client, "default")
    await kit.submit()
    own = int(await client.ask("CLIENT", "ID"))

    await client.execute_command("CLIENT", "KILL", "ID", own)
    while True:
        try:
            await kit.submit()
            break
        except StoreUnavailable:
            continue

    assert int(await client.ask("CLIENT", "ID")) != own


async def test_large_commands_and_answers_pass(client: Any) -> None:
    large = os.urandom(8 * 1024 * 1024)

    assert await asyncio.gather(*(client.ask("ECHO", large) for _ in range(3))) == [large] * 3


async def test_ending_it_leaves_no_connection(stores: EmbeddedStores) -> None:
    watching: Any = connect(stores.redis_url)
    client: Any = connect(stores.redis_url)
    await client.ask("PING")
    await client.aclose()

    while len(await watching.client_list()) > 1:
        await asyncio.sleep(0.01)
    await watching.aclose()


async def test_what_a_silent_server_has_not_read_keeps_nobody_waiting(tmp_path: Path, stores: EmbeddedStores) -> None:
    client: Any = connect(stores.redis_url)
    client.connection_pool.connection_kwargs["socket_timeout"] = 0.2
    await client.ask("PING")
    os.kill(server_pid(tmp_path), signal.SIGSTOP)

    try:
        with pytest.raises(TooLate):
            await client.ask("ECHO", bytes(20_000_000))
        async with asyncio.timeout(4):
            with pytest.raises(RedisError):
                await client.ask("PING")
    finally:
        os.kill(server_pid(tmp_path), signal.SIGCONT)
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
    await kit.fleet.heartbeat("w1")
    await asyncio.gather(
        *(note("claim", kit.queue.claim("w1", 30)) for _ in range(2)), note("heartbeat", kit.fleet.heartbeat("w1"))
    )

    assert answered == ["heartbeat", "claim", "claim"]


async def test_reads_of_many_tasks_come_in_several_answers(client: Any) -> None:
    kit = await make_kit(client, "default")
    ids = [await kit.submit() for _ in range(120)]
    before = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]

    found = await kit.queue.read_many(ids)

    assert [task and task.task_id for task in found] == ids
    assert (await client.info("commandstats"))["cmdstat_evalsha"]["calls"] - before >= 3
