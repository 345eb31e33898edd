"""One asynchronous client may be used by several loops, one after another or at once: each has its own connections."""

import asyncio
import gc
import weakref

import pytest

from tests.client.ways import PLAIN, Sender, answering, post, request_of, sender, server
from tideq.client.http.exchange import Lost

LAST = PLAIN.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


async def asking(http: Sender, *bodies: bytes) -> list[bytes]:
    return [(await http.send(post(body))).body for body in bodies]


async def elsewhere(http: Sender, *bodies: bytes) -> list[bytes]:
    """In another thread, by a loop of its own."""
    return await asyncio.to_thread(asyncio.run, asking(http, *bodies))


async def test_loops_at_once_do_not_end_each_others_calls_and_use_their_connections_again() -> None:
    connections = 0
    all_ask = asyncio.Barrier(3)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while request := await request_of(reader):
            await all_ask.wait()
            writer.write(LAST if request.endswith(b"last") else PLAIN)

    async with server(serve) as place, sender("async", f"http://{place}") as http, asyncio.timeout(60):
        told = await asyncio.gather(*(ask(http, b"1", b"2", b"last") for ask in (asking, elsewhere, elsewhere)))

    assert (told, connections) == ([[b"ok"] * 3] * 3, 3)


async def test_closing_in_one_loop_ends_what_rests_and_what_is_under_way_in_the_others() -> None:
    begun, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)
    both_ask = asyncio.Barrier(2)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not (await request_of(reader)).endswith(b"wait"):
                await both_ask.wait()
                writer.write(PLAIN)
            begun.release()
            await reader.read()
        finally:
            ended.release()

    async def two_then_one(http: Sender) -> None:
        """Of two connections one rests while the other is used."""
        await asyncio.gather(http.send(post()), http.send(post()))
        await http.send(post(b"wait"))

    async with server(serve) as place, sender("async", f"http://{place}") as http, asyncio.timeout(60):
        here = asyncio.create_task(two_then_one(http))
        await begun.acquire()
        other = asyncio.create_task(asyncio.to_thread(asyncio.run, two_then_one(http)))
        await begun.acquire()
        assert not any(each.done() for each in (here, other))
        await http.aclose()
        told = await asyncio.gather(here, other, return_exceptions=True)
        for _ in range(4):
            await ended.acquire()

    assert [type(each) for each in told] == [Lost, Lost]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # Python's word for what ends with its loop
async def test_nothing_of_loops_that_ended_is_kept_when_another_comes() -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []
    ended = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answering(PLAIN)(reader, writer)
        finally:
            ended.release()

    async def ask_and_leave(http: Sender) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await asking(http, b"1")

    async with server(serve) as place, sender("async", f"http://{place}") as http, asyncio.timeout(60):
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, ask_and_leave(http)) for _ in range(3)))
        await asking(http, b"1")
        gc.collect()
        assert [loop() for loop in loops] == [None] * 3
        for _ in range(3):
            await ended.acquire()
