"""Submissions that are under way together share requests, and nobody can tell but by counting."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from tests.client.faulty import LOST_ANSWER, FaultyProxy
from tests.client.ways import request_of, server
from tideq.client import AsyncClient, IdempotencyConflict, InvalidRequest, RetryPolicy, ServerError, TooManyRequests
from tideq.client.errors import PROBLEM_TYPES

HASTY = RetryPolicy(base_seconds=0.001, cap_seconds=0.01)
LOST = (0, "")


@dataclass
class Service:
    """Answers as a test says, and keeps what it was asked."""

    requests: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])
    keys: list[str] = field(default_factory=list[str])
    arrived: asyncio.Queue[int] = field(default_factory=asyncio.Queue[int])
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """Until then only single ones are answered."""
    refuse: Callable[[int, int], tuple[int, str] | None] = lambda _number, _size: None
    """By the number of the request and of its tasks: a status and a code, or nothing for an answer that is lost."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _, body = (await request_of(reader)).partition(b"\r\n\r\n")
            document: Any = msgspec.json.decode(body)
            is_batch = b"/batch " in head
            tasks = document["tasks"] if is_batch else [document]
            number = len(self.requests)
            self.requests.append(tasks)
            self.keys.append(head.decode().lower().partition("idempotency-key: ")[2].split("\r\n")[0])
            self.arrived.put_nowait(number)
            if is_batch:
                await self.go.wait()
            refused = self.refuse(number, len(tasks))
            if refused == LOST:
                return
            rows = [{"task_id": f"{task['parameters']['n']}"} for task in tasks]
            answer: Any = {"tasks": rows} if is_batch else rows[0]
            if refused:
                answer = {"type": PROBLEM_TYPES + refused[1], "status": refused[0], "detail": refused[1]}
            text = msgspec.json.encode(answer)
            writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n" % (refused[0] if refused else 201, len(text)))
            writer.write(text)

    @property
    def sizes(self) -> list[int]:
        return [len(tasks) for tasks in self.requests]


@contextlib.asynccontextmanager
async def service() -> AsyncGenerator[tuple[Service, AsyncClient]]:
    scripted = Service()
    async with server(scripted.serve) as place, AsyncClient(f"http://{place}", retries=HASTY) as client:
        yield scripted, client


def submitting(client: AsyncClient, count: int, first: int = 0, **options: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(client.submit("t", {"n": n}, **options)) for n in range(first, first + count)]


async def ids(calls: list[asyncio.Task[Any]]) -> list[str]:
    return [each.task_id for each in await asyncio.gather(*calls)]


class TestRequests:
    async def test_one_after_the_other_each_goes_by_itself(self) -> None:
        async with service() as (scripted, client):
            scripted.go.set()
            told = [(await client.submit("t", {"n": n})).task_id for n in range(5)]

        assert (told, scripted.sizes) == ([str(n) for n in range(5)], [1] * 5)
        assert len(set(scripted.keys)) == 5

    async def test_the_first_goes_at_once_and_those_that_come_meanwhile_together(self) -> None:
        async with service() as (scripted, client):
            calls = submitting(client, 8)
            await scripted.arrived.get()
            scripted.go.set()
            told = await ids(calls)

        assert told == [str(n) for n in range(8)]
        assert scripted.sizes == [1, 7]
        assert len(set(scripted.keys)) == 2

    async def test_many_are_shared_by_two_requests_at_a_time(self) -> None:
        async with service() as (scripted, client):
            calls = submitting(client, 32)
            await scripted.arrived.get()
            await scripted.arrived.get()
            under_way = list(scripted.sizes)
            scripted.go.set()
            told = await ids(calls)

        assert told == [str(n) for n in range(32)]
        assert (under_way, scripted.sizes) == ([1, 16], [1, 16, 15])

    @pytest.mark.parametrize("other", [{"client_id": "b"}, {"idempotency_key": "k"}], ids=["another client's", "keyed"])
    async def test_only_what_is_alike_shares_a_request(self, other: dict[str, str]) -> None:
        async with service() as (scripted, client):
            calls = [*submitting(client, 3, client_id="a"), *submitting(client, 3, 3, **{"client_id": "a", **other})]
            for _ in range(4):
                await scripted.arrived.get()
            scripted.go.set()
            await ids(calls)

        assert sorted(scripted.sizes) == [1, 1, 2, 2]
        for tasks in scripted.requests:
            assert len({(task["client_id"], task.get("idempotency_key")) for task in tasks}) == 1

    @pytest.mark.parametrize("option", [{"durability": "disk"}, {"task_id": "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5"}])
    async def test_what_needs_care_of_its_own_goes_by_itself(self, option: Any) -> None:
        async with service() as (scripted, client):
            scripted.go.set()
            await ids(submitting(client, 4, **option))

        assert scripted.sizes == [1] * 4

    async def test_large_ones_do_not_go_together(self) -> None:
        async with service() as (scripted, client):
            scripted.go.set()
            calls = [asyncio.create_task(client.submit("t", {"n": n, "x": "x" * 200_000})) for n in range(6)]
            await ids(calls)

        assert scripted.sizes == [1] * 6


class TestRefusals:
    @pytest.mark.parametrize(("status", "code"), [(429, "queue-full"), (422, "invalid-task"), (413, "too-large")])
    async def test_what_refuses_all_of_them_sends_each_by_itself_at_once(self, status: int, code: str) -> None:
        async with service() as (scripted, client):
            scripted.refuse = lambda _, size: (status, code) if size > 1 else None
            scripted.go.set()
            told = await ids(submitting(client, 8))

        assert told == [str(n) for n in range(8)]
        assert scripted.sizes.count(1) == 8

    async def test_a_failure_that_may_have_been_carried_out_is_each_ones_own_and_sends_nothing_again(self) -> None:
        async with service() as (scripted, client):
            scripted.refuse = lambda _, size: (500, "internal") if size > 1 else None
            scripted.go.set()
            told = await asyncio.gather(*submitting(client, 6), return_exceptions=True)

        failed = [each for each in told if isinstance(each, ServerError)]
        assert (len(failed), len({id(each) for each in failed})) == (5, 5)
        assert sum(scripted.sizes) == 6

    async def test_a_lost_answer_is_asked_for_again_as_it_was(self) -> None:
        async with service() as (scripted, client):
            course = iter([LOST, LOST])
            scripted.refuse = lambda _, size: next(course, None) if size > 1 else None
            scripted.go.set()
            told = await ids(submitting(client, 3))

        assert told == ["0", "1", "2"]
        assert scripted.sizes.count(2) == 3
        assert len(set(scripted.keys)) == 2

    async def test_lack_of_room_after_a_lost_answer_is_waited_out_under_the_same_key(self) -> None:
        """By themselves they would have other keys, and the lost one may still be carried out."""
        async with service() as (scripted, client):
            course = iter([LOST, (429, "queue-full")])
            scripted.refuse = lambda _, size: next(course, None) if size > 1 else None
            scripted.go.set()
            told = await ids(submitting(client, 3))

        assert told == ["0", "1", "2"]
        assert sorted(scripted.sizes) == [1, 2, 2, 2]
        assert len({key for key, tasks in zip(scripted.keys, scripted.requests, strict=True) if len(tasks) > 1}) == 1

    async def test_nobody_waits_for_a_request_that_is_about_to_be_tried_again(self) -> None:
        async with service() as (scripted, client):
            client.transport.policy = RetryPolicy(base_seconds=3_600, cap_seconds=3_600, deadline_seconds=7_200)
            scripted.refuse = lambda number, _: (503, "store-unavailable") if number < 2 else None
            scripted.go.set()
            first = submitting(client, 2)
            while len(scripted.requests) < 2:
                await scripted.arrived.get()
            assert await ids(submitting(client, 4, 2)) == ["2", "3", "4", "5"]
            for call in first:
                call.cancel()

    async def test_a_refusal_of_one_by_itself_is_its_own(self) -> None:
        async with service() as (scripted, client):
            client.transport.policy = RetryPolicy(deadline_seconds=0)

            def refuse(number: int, size: int) -> tuple[int, str] | None:
                if size > 1:
                    return 422, "invalid-task"
                return (429, "queue-full") if scripted.requests[number][0]["parameters"]["n"] == 2 else None

            scripted.refuse = refuse
            scripted.go.set()
            told = await asyncio.gather(*submitting(client, 4), return_exceptions=True)

        assert [type(each) is TooManyRequests for each in told] == [False, False, True, False]


class TestCancellation:
    async def test_who_does_not_want_it_any_more_is_left_out_and_harms_nobody(self) -> None:
        async with service() as (scripted, client):
            calls = submitting(client, 12)
            for _ in range(2):
                await scripted.arrived.get()  # the first, and eight together
            calls += submitting(client, 2, 12)
            await asyncio.sleep(0)
            calls[3].cancel()  # under way
            calls[12].cancel()  # waits
            await asyncio.wait([calls[3], calls[12]])
            scripted.go.set()
            told = await asyncio.gather(*calls, return_exceptions=True)

        assert [number for number, each in enumerate(told) if isinstance(each, asyncio.CancelledError)] == [3, 12]
        assert not any(task["parameters"]["n"] == 12 for tasks in scripted.requests for task in tasks)
        assert scripted.sizes == [1, 8, 4]

    async def test_what_nobody_wants_any_more_is_not_tried_again(self) -> None:
        async with service() as (scripted, client):
            calls = submitting(client, 3)
            for _ in range(2):
                await scripted.arrived.get()
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            scripted.go.set()
            assert await ids(submitting(client, 1, 7)) == ["7"]

        assert sorted(scripted.sizes) == [1, 1, 2]

    async def test_one_of_a_refused_request_that_nobody_wants_any_more_is_not_tried_again(self) -> None:
        async with service() as (scripted, client):
            is_full = True

            def refuse(number: int, _size: int) -> tuple[int, str] | None:
                return (429, "queue-full") if is_full and number > 0 else None

            def tries(n: int) -> int:
                return sum(tasks[0]["parameters"]["n"] == n for tasks in scripted.requests if len(tasks) == 1)

            scripted.refuse = refuse
            scripted.go.set()
            calls = submitting(client, 3)
            while not (tries(1) and tries(2)):
                await scripted.arrived.get()
            calls[1].cancel()
            await asyncio.wait([calls[1]])
            before, others = tries(1), tries(2)
            while tries(2) < others + 20:
                await scripted.arrived.get()
            is_full = False
            told = await asyncio.gather(*calls, return_exceptions=True)

        assert [isinstance(each, asyncio.CancelledError) for each in told] == [False, True, False]
        assert tries(1) <= before + 1  # which may have been on its way

    async def test_a_client_that_is_closed_leaves_nobody_waiting(self) -> None:
        async with service() as (scripted, client):
            client.transport.policy = RetryPolicy(deadline_seconds=0)
            calls = submitting(client, 8)
            for _ in range(2):
                await scripted.arrived.get()
            calls += submitting(client, 2, 8)
            await asyncio.sleep(0)
            await client.aclose()
            async with asyncio.timeout(60):
                told = await asyncio.gather(*calls, return_exceptions=True)

        assert [isinstance(each, Exception) for each in told] == [False] + [True] * 9


class TestAgainstTheService:
    async def test_answers_say_what_those_to_single_ones_say(self, url: str, task_type: str) -> None:
        async with AsyncClient(url) as client:
            told = await asyncio.gather(*(client.submit(task_type) for _ in range(20)))

        assert all(each.queue_position is not None and each.queue_score is not None for each in told)

    async def test_one_that_is_wrong_is_refused_and_31_are_taken(self, url: str, task_type: str) -> None:
        async with AsyncClient(url) as client:
            told = await asyncio.gather(
                *(client.submit(task_type, priority="urgent" if n == 20 else None) for n in range(32)),
                return_exceptions=True,
            )
            depth = (await client.queue.stats()).queue.by_type[task_type]

        (refused,) = [each for each in told if isinstance(each, BaseException)]
        assert told.index(refused) == 20
        assert isinstance(refused, InvalidRequest)
        assert [each.pointer for each in refused.fields] == ["/priority"]
        assert depth == 31

    async def test_keys_of_the_callers_stand_for_one_task_each(self, url: str, task_type: str) -> None:
        async with AsyncClient(url) as client:
            told = await asyncio.gather(
                *(client.submit(task_type, {"n": n % 3}, idempotency_key=f"{task_type}{n % 3}") for n in range(12)),
                *(client.submit(task_type, {"n": n}, idempotency_key=f"{task_type}0") for n in (0, 1)),
                return_exceptions=True,
            )
            depth = (await client.queue.stats()).queue.by_type[task_type]

        assert [type(each) is IdempotencyConflict for each in told] == [False] * 13 + [True]
        assert (len({each.task_id for each in told if not isinstance(each, BaseException)}), depth) == (3, 3)

    async def test_lost_answers_make_no_task_twice(self, proxy: FaultyProxy, task_type: str) -> None:
        proxy.faults = [LOST_ANSWER] * 4
        async with AsyncClient(proxy.url, retries=HASTY) as client:
            told = await asyncio.gather(*(client.submit(task_type, {"n": n}) for n in range(32)))
            depth = (await client.queue.stats()).queue.by_type[task_type]
            some = [(await client.get(told[n].task_id)).parameters["n"] for n in (0, 1, 16, 31)]

        assert (len({each.task_id for each in told}), depth, some) == (32, 32, [0, 1, 16, 31])
        assert sum("/batch " in each.head for each in proxy.seen) >= 2
        assert len(proxy.seen) < 20
