"""Events through the client, in both its forms, over connections that hold and connections that break."""

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.api.bench import Bench
from tests.api.proxy import proxying
from tests.api.running import environ, serving
from tests.client.both import Form, client_of
from tests.client.workshop import do_one
from tests.stores import StoreUnderTest, free_port
from tideq.client import AsyncClient, AsyncEventStream, CannotConnect, Event, Gap, RetryPolicy, Transition
from tideq.queue_core.scripts.keys import Keys


async def take(events: AsyncEventStream, count: int) -> list[Event]:
    async with asyncio.timeout(20):
        return [await anext(events) for _ in range(count)]


def told(events: list[Event]) -> list[tuple[str, int]]:
    return [(event.task_id, event.version) for event in events if isinstance(event, Transition)]


async def test_what_happens_after_entering_is_told_in_order(
    client: AsyncClient, workers: Bench, task_type: str
) -> None:
    async with client.events(task_type=task_type) as events:
        submitted = await client.submit(task_type, priority="high")
        await do_one(workers, task_type)

        heard = await take(events, 4)

    assert told(heard) == [(submitted.task_id, version) for version in (1, 2, 3, 4)]
    assert [event.status for event in heard if isinstance(event, Transition)] == [
        "queued",
        "assigned",
        "executing",
        "completed",
    ]
    last = heard[-1]
    assert isinstance(last, Transition)
    assert (last.task_type, last.reason, last.priority, last.attempt) == (task_type, "succeeded", "high", 1)
    assert last.worker_id
    assert last.event_id


async def test_only_what_was_asked_for_is_told(client: AsyncClient, workers: Bench, task_type: str) -> None:
    async with client.events(task_type=[task_type], status=["executing", "completed"]) as events:
        submitted = await client.submit(task_type)
        await do_one(workers, task_type)

        assert told(await take(events, 2)) == [(submitted.task_id, 3), (submitted.task_id, 4)]


async def test_listening_goes_on_after_an_event_one_has(client: AsyncClient, task_type: str) -> None:
    async with client.events(task_type=task_type) as events:
        first = await client.submit(task_type)
        (event,) = await take(events, 1)
    missed = await client.submit(task_type)

    async with client.events(task_type=task_type, after=event.event_id) as events:
        heard = await take(events, 1)

    assert told([event]) == [(first.task_id, 1)]
    # A replicator runs here, so the service may have dropped the place already: then it must say so.
    assert told(heard) == [(missed.task_id, 1)] or isinstance(heard[0], Gap)


class TestBrokenConnections:
    """A service without history: nothing trims its stream, so whatever is missing is the client's fault."""

    @pytest.fixture
    def lone_settings(self, store: StoreUnderTest, task_type: str) -> dict[str, str]:
        return environ(store.url, task_type)

    async def test_none_is_missed_and_none_comes_twice(
        self, form: Form, lone_settings: dict[str, str], tmp_path: Path, task_type: str
    ) -> None:
        ids: list[str] = []
        heard: list[Event] = []
        cuts = itertools.cycle((True, False))
        with serving(lone_settings, tmp_path) as running:
            async with (
                proxying(running.url) as proxy,
                client_of(form, running.url) as direct,
                client_of(form, f"http://127.0.0.1:{proxy.port}") as client,
                client.events() as events,
            ):
                # In a queue where nothing ever happened there is no place yet to go on from.
                await direct.submit(task_type)
                await take(events, 1)
                proxy.resets_before = lambda answer: b"event: transition" in answer and next(cuts)
                for _ in range(4):
                    ids.append((await direct.submit(task_type)).task_id)
                    heard += await take(events, 1)

        assert told(heard) == [(task_id, 1) for task_id in ids]
        assert proxy.reset_count == 4

    async def test_what_the_service_no_longer_has_is_said(
        self, form: Form, lone_settings: dict[str, str], tmp_path: Path, task_type: str
    ) -> None:
        """The first event is lost with its connection, and trimmed before the client is back."""
        cuts = itertools.chain((True,), itertools.repeat(False))
        outbox = Keys(lone_settings["TIDEQ_QUEUE"]).key("outbox")
        driver: Any = redis.Redis
        store = driver.from_url(lone_settings["REDIS_URL"])

        def trims_and_cuts(answer: bytes) -> bool:
            is_cut = b"event: transition" in answer and next(cuts)
            if is_cut:
                store.xtrim(outbox, maxlen=0)
            return is_cut

        with serving(lone_settings, tmp_path) as running, contextlib.closing(store):
            async with (
                proxying(running.url) as proxy,
                client_of(form, running.url) as direct,
                client_of(form, f"http://127.0.0.1:{proxy.port}") as client,
                client.events() as events,
            ):
                proxy.resets_before = trims_and_cuts
                await direct.submit(task_type)

                (event,) = await take(events, 1)

        assert isinstance(event, Gap)

    async def test_the_first_event_of_a_queue_is_sent_again(
        self, form: Form, lone_settings: dict[str, str], tmp_path: Path, task_type: str
    ) -> None:
        cuts = itertools.chain((True,), itertools.repeat(False))
        with serving(lone_settings, tmp_path) as running:
            async with (
                proxying(running.url) as proxy,
                client_of(form, running.url) as direct,
                client_of(form, f"http://127.0.0.1:{proxy.port}") as client,
                client.events() as events,
            ):
                proxy.resets_before = lambda answer: b"event: transition" in answer and next(cuts)
                submitted = await direct.submit(task_type)

                heard = await take(events, 1)

        assert told(heard) == [(submitted.task_id, 1)]

    async def test_a_restarted_service_is_listened_to_again(
        self, form: Form, lone_settings: dict[str, str], tmp_path: Path, task_type: str
    ) -> None:
        port = free_port()
        async with client_of(form, f"http://127.0.0.1:{port}") as client:
            with serving(lone_settings, tmp_path, port):
                events = await client.events().__aenter__()
                await client.submit(task_type)
                await take(events, 1)
                unheard = await client.submit(task_type)
            with serving(lone_settings, tmp_path, port):
                later = await client.submit(task_type)
                heard = await take(events, 2)
                await events.aclose()

        assert told(heard) == [(unheard.task_id, 1), (later.task_id, 1)]

    async def test_a_service_that_stays_away_ends_it(
        self, form: Form, lone_settings: dict[str, str], tmp_path: Path
    ) -> None:
        patience = RetryPolicy(deadline_seconds=1)
        with serving(lone_settings, tmp_path) as running:
            client = client_of(form, running.url, retries=patience)
            events = await client.events().__aenter__()

        with pytest.raises(CannotConnect) as given_up:
            await take(events, 1)

        assert "gave up after" in given_up.value.__notes__[0]
        await client.aclose()
