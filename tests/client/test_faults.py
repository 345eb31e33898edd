"""What the client does when answers are lost, proxies fail and services restart: each thing happens once."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.api.bench import Bench
from tests.api.running import environ, serving
from tests.client.both import Form, client_of
from tests.client.faulty import LOST_ANSWER, Fault, FaultyProxy
from tests.client.workshop import do_one
from tests.stores import StoreUnderTest, free_port
from tideq.client import (
    NO_RETRIES,
    AsyncClient,
    BadAnswer,
    CannotConnect,
    DurabilityNotReached,
    NewTask,
    NoAnswer,
    RetryPolicy,
    ServerError,
    TideqError,
    TooManyRequests,
    Unavailable,
)


class Noting(RetryPolicy, frozen=True, kw_only=True):
    """Tells what it was asked about."""

    noted: list[type[TideqError]] = msgspec.field(default_factory=list[type[TideqError]])

    def delay(self, error: TideqError, **facts: Any) -> float | None:
        self.noted.append(type(error))
        return super().delay(error, **facts)


def problem(status: int, code: str, *headers: str, **fields: str) -> Fault:
    document = {"type": f"https://tideq.dev/problems/{code}", "title": code, "status": status, "detail": code, **fields}
    return Fault(status, headers, msgspec.json.encode(document))


@pytest.fixture
async def client(hasty: AsyncClient) -> AsyncClient:
    """Talks through the proxy."""
    return hasty


async def depth(client: AsyncClient, task_type: str) -> int:
    return (await client.queue.stats()).queue.by_type.get(task_type, 0)


class TestSubmissions:
    async def test_lost_answers_make_one_task(self, client: AsyncClient, proxy: FaultyProxy, task_type: str) -> None:
        proxy.faults = [LOST_ANSWER] * 3

        submitted = await client.submit(task_type, {"n": 1})

        assert len(proxy.seen) == 4
        assert len({request.header("Idempotency-Key") for request in proxy.seen}) == 1
        assert len({request.body for request in proxy.seen}) == 1
        assert await depth(client, task_type) == 1
        assert (await client.get(submitted.task_id)).parameters == {"n": 1}

    async def test_lost_answers_make_one_batch(self, client: AsyncClient, proxy: FaultyProxy, task_type: str) -> None:
        proxy.faults = [LOST_ANSWER, LOST_ANSWER]

        submitted = await client.submit_many(NewTask(task_type, {"n": n}) for n in range(1_100))

        assert len(proxy.seen) == 4
        assert len({each.task_id for each in submitted}) == 1_100
        assert await depth(client, task_type) == 1_100

    @pytest.mark.parametrize("status", [502, 503, 504])
    async def test_a_proxy_that_fails_after_the_work_makes_one_task(
        self, client: AsyncClient, proxy: FaultyProxy, task_type: str, status: int
    ) -> None:
        proxy.faults = [Fault(status, body=b"<html>bad gateway</html>", is_done=True)] * 2

        await client.submit(task_type)

        assert len(proxy.seen) == 3
        assert await depth(client, task_type) == 1

    async def test_a_key_of_the_callers_is_kept(self, client: AsyncClient, proxy: FaultyProxy, task_type: str) -> None:
        proxy.faults = [LOST_ANSWER]

        submitted = await client.submit(task_type, idempotency_key=task_type)

        assert (await client.get(submitted.task_id)).idempotency_key == task_type
        assert await depth(client, task_type) == 1

    async def test_a_durability_not_reached_is_told_and_not_tried_again(
        self, client: AsyncClient, proxy: FaultyProxy, task_type: str
    ) -> None:
        proxy.faults = [problem(504, "durability-not-reached", task_id="0195546e", durability="store")]

        with pytest.raises(DurabilityNotReached) as told:
            await client.submit(task_type, durability="history")

        assert len(proxy.seen) == 1
        assert (told.value.task_id, told.value.reached) == ("0195546e", "store")

    async def test_a_failure_inside_is_not_tried_again(
        self, client: AsyncClient, proxy: FaultyProxy, task_type: str
    ) -> None:
        proxy.faults = [problem(500, "internal")]

        with pytest.raises(ServerError):
            await client.submit(task_type)

        assert len(proxy.seen) == 1


class TestWaitingForTheService:
    @pytest.mark.parametrize("code", ["queue-full", "store-unavailable"])
    async def test_the_time_the_service_names_is_waited_for(
        self, client: AsyncClient, proxy: FaultyProxy, task_type: str, code: str
    ) -> None:
        status = 429 if code == "queue-full" else 503
        proxy.faults = [problem(status, code, "Retry-After: 1")]
        loop = asyncio.get_running_loop()
        began = loop.time()

        await client.submit(task_type)

        assert len(proxy.seen) == 2
        assert loop.time() - began >= 1

    async def test_a_time_beyond_the_deadline_is_not_waited_for(
        self, client: AsyncClient, proxy: FaultyProxy, task_type: str
    ) -> None:
        proxy.faults = [problem(429, "queue-full", "Retry-After: 3600")]

        with pytest.raises(TooManyRequests) as told:
            await client.submit(task_type)

        assert (len(proxy.seen), told.value.retry_after) == (1, 3600)

    async def test_it_gives_up_in_the_end(self, form: Form, proxy: FaultyProxy, task_type: str) -> None:
        proxy.faults = [problem(503, "store-unavailable")] * 1_000
        patience = RetryPolicy(base_seconds=0.1, cap_seconds=0.1, deadline_seconds=1)
        async with client_of(form, proxy.url, retries=patience) as client:
            with pytest.raises(Unavailable) as told:
                await client.submit(task_type)

        assert 2 <= len(proxy.seen) <= 21
        assert told.value.__notes__[0].startswith(f"gave up after {len(proxy.seen)} attempts")

    async def test_without_retries_there_are_none(self, form: Form, proxy: FaultyProxy, task_type: str) -> None:
        proxy.faults = [LOST_ANSWER]
        async with client_of(form, proxy.url, retries=NO_RETRIES) as client:
            with pytest.raises(NoAnswer):
                await client.submit(task_type)

        assert len(proxy.seen) == 1


class TestNobodyThere:
    async def test_a_service_that_is_not_there_is_said_so_plainly(self, form: Form) -> None:
        url = f"http://127.0.0.1:{free_port()}"
        async with client_of(form, url, retries=NO_RETRIES) as client:
            with pytest.raises(CannotConnect) as told:
                await client.queue.stats()

        assert url in str(told.value)
        assert "Check the URL" in str(told.value)

    @pytest.mark.parametrize(
        "answer",
        [
            Fault(200, body=b"<html>hello</html>"),
            Fault(200, body=b'{"unlike": "us"}'),
            Fault(200, body=b"\xff\xfe"),
            Fault(302, ("Location: /login",)),
            Fault(418, body=b"teapot"),
        ],
        ids=["a page", "another document", "no text", "a redirect", "another refusal"],
    )
    async def test_something_else_that_answers_is_found_out(
        self, client: AsyncClient, proxy: FaultyProxy, answer: Fault
    ) -> None:
        proxy.faults = [answer]

        with pytest.raises(BadAnswer):
            await client.get("0195546e-3c7a-7d21-9f04-00a1b2c3d4e5")

        assert len(proxy.seen) == 1

    async def test_something_else_that_tells_no_events_is_found_out(
        self, client: AsyncClient, proxy: FaultyProxy
    ) -> None:
        proxy.faults = [Fault(200, body=b"<html>hello</html>\n\n")]

        with pytest.raises(BadAnswer):
            await anext(client.events())

        assert len(proxy.seen) == 1

    async def test_calls_outlast_a_restart(
        self, form: Form, store: StoreUnderTest, task_type: str, tmp_path: Path
    ) -> None:
        port, policy = free_port(), Noting(cap_seconds=0.2, deadline_seconds=120)
        settings = environ(store.url, task_type)
        with contextlib.ExitStack() as services:
            async with client_of(form, f"http://127.0.0.1:{port}", retries=policy) as client:
                with serving(settings, tmp_path, port):
                    first = await client.submit(task_type)
                submitting = asyncio.create_task(client.submit(task_type))
                waiting = asyncio.create_task(client.wait(first.task_id, timeout_seconds=200))
                await asyncio.to_thread(services.enter_context, serving(settings, tmp_path, port))
                second = await submitting
                async with asyncio.timeout(60):
                    await client.cancel(first.task_id)
                    task = await waiting

                assert await depth(client, task_type) == 1

        assert (task.status, second.task_id != first.task_id) == ("cancelled", True)
        assert CannotConnect in policy.noted


async def test_a_wait_that_is_answered_early_goes_on(
    client: AsyncClient, proxy: FaultyProxy, workers: Bench, task_type: str
) -> None:
    task_id = (await client.submit(task_type)).task_id
    await do_one(workers, task_type, "done")
    unfinished = {
        "task_id": task_id,
        "task_type": task_type,
        "status": "executing",
        "created_at": "2026-03-02T09:15:00Z",
    }
    proxy.faults = [Fault(200, body=msgspec.json.encode(unfinished))] * 2
    proxy.seen.clear()

    task = await client.wait(task_id)

    assert (task.result, len(proxy.seen)) == ("done", 3)
