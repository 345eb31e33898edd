"""Probing workers: who is asked, who never is, and what a verdict changes."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from tests.kit import Kit
from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.task import Worker
from tideq.workers.monitor import addresses
from tideq.workers.monitor.addresses import MAX_RESOLVING, NotAllowed, NotResolved, allowed_address
from tideq.workers.monitor.probe import MAX_BYTES, is_well
from tideq.workers.monitor.prober import Prober

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
SICK = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HOSTILE = [
    "0",
    "0.0.0.0",  # noqa: S104
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "017700000001",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "127.0.0.2",
    "[::1]",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "fe80::1",
    "fe80::1%lo",
    "fd00:ec2::254",
    "169.254.169.254",
    "224.0.0.1",
    "255.255.255.255",
    "10.0.0.1",
    "user@127.0.0.1",
    "127.0.0.1:80",
    "127.0.0.1/health",
    "http://127.0.0.1",
    "metadata.google.internal\r\nHost: x",
    "",
    "..",
    "-a.example",
]
"""Ways to write an address that must not be asked while 127.0.0.1 itself may be."""


@pytest.mark.parametrize("host", HOSTILE)
async def test_a_hostile_address_is_never_contacted(host: str) -> None:
    with pytest.raises(NotAllowed):
        await allowed_address(host, [ip_network("127.0.0.1/32")])


async def test_a_name_that_resolves_to_something_else_as_well_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def two_faced(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", ("127.0.0.1", 0)), (2, 1, 6, "", ("169.254.169.254", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", two_faced)

    with pytest.raises(NotAllowed):
        await allowed_address("worker.example", [ip_network("127.0.0.1/32")])


async def test_a_name_is_resolved_once_and_what_was_checked_is_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["127.0.0.1", "10.0.0.9"])

    def flipping(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", (next(answers), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", flipping)

    assert await allowed_address("worker.example", [ip_network("127.0.0.1/32")]) == ip_address("127.0.0.1")


async def test_names_that_are_not_resolved_hold_up_no_other_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one asked for again while its first answer is still due."""
    may_end, asked, ended = threading.Event(), list[str](), list[str]()
    resolve = socket.getaddrinfo

    def resolving(host: str, *rest: Any, **options: Any) -> Any:
        asked.append(host)
        if host.startswith("slow"):
            may_end.wait(60)
            ended.append(host)
            raise OSError("no answer")
        return resolve("127.0.0.1", *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolving)
    monkeypatch.setattr(addresses, "RESOLVE_SECONDS", 0.05)
    allowed, slow = [ip_network("127.0.0.1/32")], [f"slow-{number}.example" for number in range(MAX_RESOLVING - 1)]
    try:
        for _ in range(2):
            refused = await asyncio.gather(*(allowed_address(name, allowed) for name in slow), return_exceptions=True)
            assert {type(each) for each in refused} == {NotResolved}

        monkeypatch.setattr(addresses, "RESOLVE_SECONDS", 30.0)
        assert await allowed_address("quick.example", allowed) == ip_address("127.0.0.1")
        assert asked == [*slow, "quick.example"]
        assert await asyncio.to_thread(lambda: "the loop's own threads are free")
    finally:
        may_end.set()
    async with asyncio.timeout(60):
        while len(ended) < len(slow):
            await asyncio.sleep(0.01)


async def test_probes_of_workers_that_share_a_host_name_share_one_question_to_the_resolver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, asked = threading.Event(), list[str]()

    def resolving(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        may_end.wait(60)
        return [(2, 1, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolving)
    allowed = [ip_network("127.0.0.1/32")]
    try:
        impatient = asyncio.create_task(allowed_address("shared.example", allowed))
        patient = [asyncio.create_task(allowed_address("shared.example", allowed)) for _ in range(4)]
        while not asked:
            await asyncio.sleep(0.001)
        impatient.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await impatient
    finally:
        may_end.set()

    assert await asyncio.gather(*patient) == [ip_address("127.0.0.1")] * 4
    assert asked == ["shared.example"]


async def test_a_name_whose_look_up_could_not_begin_is_resolved_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    allowed = [ip_network("127.0.0.1/32")]
    monkeypatch.setattr(socket, "getaddrinfo", _resolve_to_loopback)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NotResolved, match="can't start new thread"):
            await allowed_address("worker.example", allowed)

    assert await allowed_address("worker.example", allowed) == ip_address("127.0.0.1")


async def test_a_redirect_is_not_followed() -> None:
    asked = list[int]()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(1)
        await _saying(OK)(reader, writer)

    async with listening(note) as elsewhere:
        redirect = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/health\r\nContent-Length: 0\r\n\r\n"
        async with listening(_saying(redirect % elsewhere)) as port:
            is_healthy = await is_well(ip_address("127.0.0.1"), port)

    assert (is_healthy, asked) == (False, [])


@pytest.mark.parametrize(
    ("answer", "is_healthy"),
    [
        (OK, True),
        (b"HTTP/1.0 200 OK\r\n\r\n", True),
        (SICK, False),
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", False),
        (b"HTTP/1.1 2000 OK\r\n\r\n", False),
        (b"200 OK\r\n\r\n", False),
        (b"", False),
        (b"A" * (MAX_BYTES * 10_000), False),
    ],
)
async def test_only_a_plain_200_is_health(answer: bytes, is_healthy: bool) -> None:
    async with listening(_saying(answer)) as port:
        assert await is_well(ip_address("127.0.0.1"), port) is is_healthy


async def test_an_answer_that_never_comes_is_not_waited_for() -> None:
    async def say_nothing(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(say_nothing) as port:
        assert await is_well(ip_address("127.0.0.1"), port) is False


async def test_two_failures_stop_new_work_and_release_nothing_and_one_success_brings_it_back(kit: Kit) -> None:
    health = [SICK]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _saying(health[0])(reader, writer)

    async with listening(answer) as port:
        await kit.fleet.register(Worker(worker_id="w1", host="127.0.0.1", health_port=port, capacity=5))
        await kit.submit()
        held = await kit.started()
        await kit.submit()
        prober = Prober(kit.fleet, ["127.0.0.1/32"])

        await prober.probe_all()
        after_one = await _state(kit)
        await prober.probe_all()
        after_two = await _state(kit)
        refused = await kit.queue.claim("w1")
        task = await kit.read(held.task_id)
        health[0] = OK
        await prober.probe_all()

        assert (after_one, after_two) == ("active", "unhealthy")
        assert refused.tasks == ()
        assert task.state == "executing"
        assert await _state(kit) == "active"
        assert len((await kit.queue.claim("w1")).tasks) == 1


async def test_a_worker_whose_name_is_not_resolved_just_now_is_asked_where_it_was_before(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would stay unhealthy for as long as the resolver is away, however well it is."""
    health = [SICK]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _saying(health[0])(reader, writer)

    def away(*_: Any, **__: Any) -> Any:
        raise socket.gaierror("temporary failure in name resolution")

    async with listening(answer) as port:
        await kit.fleet.register(Worker(worker_id="w1", host="worker.example", health_port=port))
        prober = Prober(kit.fleet, ["127.0.0.1/32"])
        with monkeypatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", _resolve_to_loopback)
            await prober.probe_all()
            await prober.probe_all()
        sick = await _state(kit)
        health[0] = OK
        monkeypatch.setattr(socket, "getaddrinfo", away)
        await prober.probe_all()

    assert (sick, await _state(kit)) == ("unhealthy", "active")


async def test_failed_probes_are_counted_in_a_row_where_everybody_sees_them(kit: Kit) -> None:
    """By whichever monitor comes next, also one that was started just now."""
    health = [SICK]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _saying(health[0])(reader, writer)

    async with listening(answer) as port:
        await kit.fleet.register(Worker(worker_id="w1", host="127.0.0.1", health_port=port))
        first = Prober(kit.fleet, ["127.0.0.1/32"])
        await first.probe_all()
        after_one = await kit.fleet.describe("w1")
        restarted = Prober(kit.fleet, ["127.0.0.1/32"])
        await restarted.probe_all()
        await restarted.probe_all()
        after_three = await kit.fleet.describe("w1")
        health[0] = OK
        await restarted.probe_all()

    well = await kit.fleet.describe("w1")
    assert (after_one.status, after_one.probe_failures, after_one.reason) == ("active", 1, None)
    assert (after_three.status, after_three.probe_failures, after_three.reason) == ("unhealthy", 3, "probe_failed")
    assert (well.status, well.probe_failures) == ("active", 0)
    stats = await kit.insight.stats()
    assert (stats.recent["health_probe_failures"], stats.totals["probe_failed"]) == (3, 1)


async def test_a_worker_that_drains_by_itself_is_probed_and_one_sent_home_is_not(kit: Kit) -> None:
    async with listening(_saying(SICK)) as port:
        for worker_id in ("resting", "leaving"):
            await kit.fleet.register(Worker(worker_id=worker_id, host="127.0.0.1", health_port=port))
        await kit.fleet.heartbeat("resting", word="draining")
        await kit.fleet.drain("leaving")

        await Prober(kit.fleet, ["127.0.0.1/32"]).probe_all()

    found = {member.worker.worker_id: member.probe_failures async for member in kit.fleet.everyone()}
    assert found == {"resting": 1, "leaving": 0}


async def test_a_worker_at_an_address_nobody_allowed_is_left_alone(kit: Kit) -> None:
    asked: list[int] = []

    async def note(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        asked.append(1)

    async with listening(note) as port:
        await kit.fleet.register(Worker(worker_id="w1", host="127.0.0.1", health_port=port))
        prober = Prober(kit.fleet, ["10.0.0.0/8"])
        await prober.probe_all()
        await prober.probe_all()

    assert asked == []
    assert await _state(kit) == "active"


def _resolve_to_loopback(*_: Any, **__: Any) -> list[Any]:
    return [(2, 1, 6, "", ("127.0.0.1", 0))]


async def _state(kit: Kit) -> str:
    (member,) = [member async for member in kit.fleet.everyone()]
    return member.status


def _saying(answer: bytes) -> Answer:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return say


@contextlib.asynccontextmanager
async def listening(answer: Answer) -> AsyncGenerator[int]:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answer(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def test_a_round_in_which_one_cannot_be_judged_still_forgets_who_has_left(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that comes back under its name has two failures before it, whatever was wrong with another."""

    async def refuse(*_: object) -> str:
        raise StoreUnavailable("away for a moment")

    async with listening(_saying(SICK)) as port:
        for worker_id in ("w1", "w2"):
            await kit.fleet.register(Worker(worker_id=worker_id, host="127.0.0.1", health_port=port))
        prober = Prober(kit.fleet, ["127.0.0.1/32"])
        await prober.probe_all()
        await kit.fleet.dismiss("w2")
        with monkeypatch.context() as patch:
            patch.setattr(kit.fleet, "judge", refuse)
            with pytest.raises(StoreUnavailable):
                await prober.probe_all()

        await kit.fleet.register(Worker(worker_id="w2", host="127.0.0.1", health_port=port))
        await prober.probe_all()

    statuses = {member.worker.worker_id: member.status for member in (await kit.fleet.members()).members}
    assert statuses == {"w1": "unhealthy", "w2": "active"}
