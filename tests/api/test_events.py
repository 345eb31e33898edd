"""Server-sent events: every transition once, in order, from where a listener left off, and no buffer without bounds."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import uvicorn
from structlog.testing import capture_logs

from tests.api.bench import Bench, assert_problem, until
from tests.api.listening import EVENTS, Listening, Message, listening
from tests.api.running import Running
from tests.contract.situations import complete_all, started_count, submit_count
from tests.kit import Kit, make_kit
from tideq.api.app import create_app
from tideq.api.server import Server, address_of, listen
from tideq.api.service import Service
from tideq.queue_core.outbox.stream import OutboxStream

ROUNDS = 20
ROUND_TRANSITIONS = 80


@pytest.fixture
async def here(service: Service, kit: Kit) -> AsyncIterator[Bench]:
    """A real server on a real socket, but in this loop: it is there at once."""
    await kit.worker(capacity=10_000)
    listener = listen("127.0.0.1", 0)
    app: Any = create_app(service)
    server = Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with httpx.AsyncClient(base_url=address_of(listener), timeout=40) as http:
        yield Bench(http)
    service.close()
    server.should_exit = True
    await serving
    listener.close()


@pytest.fixture
async def watched(client: Any, server: Running, queue_name: str) -> AsyncIterator[Kit]:
    """The process's queue, moved from outside: events come from any process."""
    kit = await make_kit(client, queue_name)
    await kit.worker(capacity=10_000)
    yield kit
    await kit.assert_sound()


def _transitions(messages: list[Message]) -> list[tuple[str, int]]:
    assert {message.event for message in messages} <= {"transition"}
    return [message.task for message in messages]


async def test_a_transition_is_told_as_it_happens(here: Bench, kit: Kit) -> None:
    async with listening(here.http) as heard:
        task_id = await kit.submit("resize", priority="high")
        await kit.complete(await kit.started())

        messages = await heard.next(4)

    assert [message.data["status"] for message in messages] == ["queued", "assigned", "executing", "completed"]
    assert [message.task for message in messages] == [(task_id, version) for version in (1, 2, 3, 4)]
    last = messages[-1].data
    assert (last["task_type"], last["priority"], last["worker_id"]) == ("resize", "high", "w1")
    assert (last["reason"], last["attempt"], last["at"][-1]) == ("succeeded", 1, "Z")
    assert len({message.id for message in messages}) == 4


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("status=completed", {("resize", 4)}),
        ("status=queued&status=completed", {("resize", 1), ("resize", 4), ("crop", 1), ("blur", 1)}),
        ("task_type=crop", {("crop", 1)}),
        ("task_type=crop&task_type=blur", {("crop", 1), ("blur", 1)}),
        ("priority=low", {("blur", 1)}),
        ("worker_id=w1", {("resize", 2), ("resize", 3), ("resize", 4)}),
        ("worker_id=nobody&status=completed", set[tuple[str, int]]()),
        ("task_type=crop&priority=low", set[tuple[str, int]]()),
    ],
)
async def test_a_listener_hears_only_what_it_asked_for(
    here: Bench, kit: Kit, query: str, expected: set[tuple[str, int]]
) -> None:
    async with listening(here.http, query) as heard, listening(here.http, "task_type=end") as other:
        await kit.submit("resize")
        await kit.complete(await kit.started())
        await kit.submit("crop")
        await kit.submit("blur", priority="low")
        await kit.submit("end", priority="high")
        await other.next(1)
        told = [heard.messages.get_nowait() for _ in range(heard.messages.qsize())]

    wanted = {(message.data["task_type"], message.data["version"]) for message in told}
    assert wanted - {("end", 1)} == expected


async def test_a_listener_may_ask_for_certain_tasks(here: Bench, kit: Kit) -> None:
    ids = await submit_count(kit, 5)

    async with listening(here.http, f"task_id={ids[1]}&task_id={ids[3]}") as heard:
        await kit.queue.cancel_many(ids)
        messages = await heard.next(2)

    assert [message.data["task_id"] for message in messages] == [ids[1], ids[3]]


async def test_a_stream_that_fails_over_something_unforeseen_is_logged_and_ends_in_order(
    here: Bench, kit: Kit, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its listener goes on from where it was."""
    async with listening(here.http) as heard:
        await kit.submit()
        (first,) = await heard.next(1)
    await kit.submit()

    with capture_logs() as logs, monkeypatch.context() as patch:
        patch.setattr(OutboxStream, "page_after", _fail)
        async with listening(here.http, "", first.id) as failing:
            await asyncio.wait_for(failing.is_over.wait(), 20)
    async with listening(here.http, "", first.id) as again:
        (second,) = await again.next(1)

    told = [each for each in logs if each["event"] == "event stream failed"]
    assert [(each["log_level"], each["exc_info"]) for each in told] == [("error", True)]
    assert second.id != first.id


async def _fail(*_: object) -> None:
    raise KeyError("what nobody thought of")


@pytest.mark.parametrize("how", ["header", "query", "both"])
async def test_a_listener_goes_on_after_its_last_event(here: Bench, kit: Kit, how: str) -> None:
    async with listening(here.http) as heard:
        await submit_count(kit, 5)
        (first, *rest) = await heard.next(5)
    await submit_count(kit, 3)

    last_id = first.id if how != "query" else ""
    query = {"header": "", "query": f"last_event_id={first.id}", "both": f"last_event_id={rest[-1].id}"}[how]
    async with listening(here.http, query, last_id) as again:
        later = await kit.submit()
        messages = await again.next(8)

    assert messages[:4] == rest
    assert messages[-1].data["task_id"] == later
    assert [int(message.id.rpartition("-")[2]) for message in messages] == [2, 3, 4, 5, 1, 2, 3, 1]


async def test_many_disconnections_neither_lose_nor_repeat_an_event(here: Bench, kit: Kit) -> None:
    """Cut anywhere, in the middle of entries too, while events go on: pieced together it is everything, once."""
    told: list[Message] = []
    async with listening(here.http) as heard:
        await kit.submit("begin", delay_ms=100_000)
        last_id = (await heard.next(1))[0].id
    busy = asyncio.create_task(_be_busy(kit))
    while len(told) < ROUNDS * ROUND_TRANSITIONS:
        async with listening(here.http, last_id=last_id) as heard:
            told += await heard.next(1)
            while heard.messages.qsize():
                told.append(heard.messages.get_nowait())
        last_id = told[-1].id

    await busy
    transitions = _transitions(told)
    assert len(transitions) == len(set(transitions)) == ROUNDS * ROUND_TRANSITIONS
    versions: dict[str, int] = {}
    for task_id, version in transitions:
        assert versions.get(task_id, 0) == version - 1
        versions[task_id] = version


async def _be_busy(kit: Kit) -> None:
    for _ in range(ROUNDS):
        await complete_all(kit, await started_count(kit, ROUND_TRANSITIONS // 4))


async def test_a_listener_whose_place_is_gone_is_told_of_the_gap(here: Bench, kit: Kit) -> None:
    async with listening(here.http) as heard:
        await kit.submit()
        (old,) = await heard.next(1)
    kept = await kit.submit()
    newest = (await kit.client.xrevrange(kit.keys.key("outbox"), count=1))[0][0].decode()
    await kit.engine.partition.acknowledge(newest, [])

    async with listening(here.http, last_id=old.id) as again:
        (gap,) = await again.next(1)
        later = await kit.submit()
        (after,) = await again.next(1)
    async with listening(here.http, last_id=gap.id) as resumed:
        (once_more,) = await resumed.next(1)

    assert (gap.event, gap.id) == ("gap", f"{newest}-1000000")
    assert gap.data["detail"]
    assert after.data["task_id"] == later != kept
    assert once_more == after


async def test_a_listener_of_another_store_is_told_of_the_gap(here: Bench, kit: Kit) -> None:
    async with listening(here.http, last_id="1772442900250-0-1") as heard:
        (gap,) = await heard.next(1)
        task_id = await kit.submit()

        assert gap.event == "gap"
        assert (await heard.next(1))[0].data["task_id"] == task_id


async def test_the_greeting_tells_where_a_listener_begins(here: Bench, kit: Kit) -> None:
    """So that one that is cut off before its first event misses nothing either."""
    await kit.submit()
    async with listening(here.http) as heard:
        await until(lambda: _is_known(heard))
        begins_at = heard.last_id
    missed = await kit.submit()

    async with listening(here.http, last_id=begins_at) as again:
        assert (await again.next(1))[0].data["task_id"] == missed


async def _is_known(heard: Listening) -> bool:
    return bool(heard.last_id)


@pytest.mark.parametrize("written", ["nonsense", "1-2", "1-2-3-4", "-1-2-3", "1-2-x", "9" * 50])
@pytest.mark.parametrize("how", ["header", "query"])
async def test_an_id_that_is_none_of_ours_is_refused(http: httpx.AsyncClient, kit: Kit, how: str, written: str) -> None:
    headers = {"Last-Event-ID": written} if how == "header" else {}

    answer = await http.get(f"{EVENTS}?last_event_id={written if how == 'query' else ''}", headers=headers)

    assert_problem(answer, 422)


async def test_a_state_there_is_not_is_refused(http: httpx.AsyncClient, kit: Kit) -> None:
    assert_problem(await http.get(f"{EVENTS}?status=asleep"), 400)


async def test_a_closing_service_opens_no_stream(http: httpx.AsyncClient, service: Service, kit: Kit) -> None:
    service.close()

    assert_problem(await http.get(EVENTS), 503, "service-closing")


async def test_streams_do_not_keep_a_service_from_stopping(server: Running, remote: Bench, watched: Kit) -> None:
    async with listening(remote.http) as one, listening(remote.http, "status=failed") as other:
        server.process.send_signal(signal.SIGTERM)

        assert await asyncio.to_thread(server.process.wait, 60) == 0
        await asyncio.wait_for(asyncio.gather(one.is_over.wait(), other.is_over.wait()), 60)
    assert server.complaints() == ""
