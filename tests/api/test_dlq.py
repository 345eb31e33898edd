"""Dead letters over HTTP: listed, grouped, sent back one by one and all at once."""

import asyncio
from collections import Counter
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench, Json, assert_problem
from tests.api.replication import Replication
from tests.kit import Kit
from tideq.api.service import Service
from tideq.queue_core.settings import QueueSettings, Retention

NEVER_MADE_ID = "0192f0c1-2b3c-7d4e-8f50-112233445566"


@pytest.fixture
def has_history() -> bool:
    return True


@pytest.fixture
def settings() -> QueueSettings:
    return QueueSettings(retention=Retention(result_ttl_ms=20))


async def die(bench: Bench, task_type: str = "resize", message: str = "boom", **fields: Any) -> str:
    """A task that is given up with its first error."""
    task_id = await bench.submit(task_type, max_retries=0, **fields)
    await fail(bench, task_type, message)
    return task_id


async def fail(bench: Bench, task_type: str, message: str) -> None:
    worker_id = await bench.register(task_types=[task_type])
    task = await bench.started(worker_id)
    await bench.tell(worker_id, "result", task, status="failed", error={"message": message, "code": "E1"})


async def dead(bench: Bench, query: str = "") -> list[str]:
    return [task["task_id"] for task in (await bench.call("GET", f"/api/v1/dlq?{query}"))["tasks"]]


async def replay_all(bench: Bench, **fields: Any) -> Json:
    return await bench.call("POST", "/api/v1/dlq/replay", {"filter": {}, **fields})


async def depth(bench: Bench) -> int:
    return (await bench.call("GET", "/api/v1/queue/stats"))["queue"]["total_depth"]


class TestList:
    async def test_the_latest_death_comes_first_and_shows_how_it_died(
        self, bench: Bench, replicated: Replication
    ) -> None:
        first = await die(bench, message="cannot reach 10.0.0.7:5432", parameters={"a": 1}, tags={"x": "y"})
        second = await die(bench, "crawl")

        page = await bench.call("GET", "/api/v1/dlq?count=true")

        assert [task["task_id"] for task in page["tasks"]] == [second, first]
        assert (page["next_cursor"], page["total"]) == (None, 2)
        letter = page["tasks"][1]
        assert (letter["status"], letter["reason"]) == ("dead_letter", "retries_exhausted")
        assert letter["message"] == "cannot reach <host>"
        assert letter["error"]["message"] == "cannot reach 10.0.0.7:5432"
        assert (letter["parameters"], letter["tags"], letter["retriable"]) == ({"a": 1}, {"x": "y"}, True)
        assert letter["died_at"] == letter["completed_at"]

    async def test_a_list_shows_the_last_error_and_says_of_how_many(
        self, bench: Bench, replicated: Replication
    ) -> None:
        task_id = await bench.submit(max_retries=2, backoff={"base_seconds": 0})
        fine = await bench.submit("crawl")
        for message in ("first", "second", "third"):
            await fail(bench, "resize", message)

        dead_letters = (await bench.call("GET", "/api/v1/dlq"))["tasks"]
        listed = {task["task_id"]: task for task in (await bench.call("GET", "/api/v1/tasks"))["tasks"]}
        read = await bench.read(task_id)

        for shown in (*dead_letters, listed[task_id]):
            assert ([error["message"] for error in shown["errors"]], shown["error_count"]) == (["third"], 3)
        assert ([error["message"] for error in read["errors"]], read["error_count"]) == (
            ["first", "second", "third"],
            3,
        )
        assert (listed[fine]["errors"], listed[fine]["error_count"]) == ([], 0)

    async def test_filters_narrow_it(self, bench: Bench, replicated: Replication) -> None:
        first, second = await die(bench, message="a"), await die(bench, "crawl", message="b")
        worker_id = await bench.register(task_types=["mail"])
        third = await bench.submit("mail")
        task = await bench.started(worker_id)
        await bench.tell(worker_id, "result", task, status="failed", error={"message": "c", "code": "DISCARD"})
        letters = (await bench.call("GET", "/api/v1/dlq"))["tasks"]
        by_id = {letter["task_id"]: letter for letter in letters}

        assert await dead(bench, "task_type=crawl") == [second]
        assert await dead(bench, f"pattern={by_id[first]['pattern']}") == [first]
        assert await dead(bench, f"before={by_id[second]['died_at']}") == [first]
        assert await dead(bench, "reason=retries_exhausted&task_type=resize") == [first]
        assert await dead(bench, "reason=poison") == []
        assert third not in by_id

    async def test_pages_follow_each_other(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        died = [await die(bench) for _ in range(5)]

        first = await http.get("/api/v1/dlq?limit=2&task_type=resize")
        second = await http.get(first.headers["link"].partition(">")[0][1:])
        third = await http.get(f"/api/v1/dlq?limit=2&task_type=resize&cursor={second.json()['next_cursor']}")

        pages = [answer.json()["tasks"] for answer in (first, second, third)]
        assert [task["task_id"] for page in pages for task in page] == died[::-1]
        assert [len(page) for page in pages] == [2, 2, 1]
        assert "link" not in third.headers

    @pytest.mark.parametrize("query", ["cursor=x", "pattern=nonsense", "reason=dull", "limit=0", "before=now"])
    async def test_a_wrong_value_is_refused(self, http: httpx.AsyncClient, query: str) -> None:
        assert_problem(await http.get(f"/api/v1/dlq?{query}"), 400)

    async def test_a_cursor_of_another_list_is_refused(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        for _ in range(2):
            await die(bench)
        ours = (await bench.call("GET", "/api/v1/dlq?limit=1"))["next_cursor"]
        other = (await bench.call("GET", "/api/v1/tasks?limit=1"))["next_cursor"]

        assert_problem(await http.get(f"/api/v1/dlq?limit=1&cursor={other}"), 400)
        assert_problem(await http.get(f"/api/v1/dlq?limit=1&task_type=resize&cursor={ours}"), 400)

    async def test_what_outlived_its_time_is_not_listed(
        self, bench: Bench, service: Service, replicated: Replication
    ) -> None:
        old, new = await die(bench), await die(bench)
        await replicated.done()
        async with replicated.archive.database.session() as connection:
            sent_back = "UPDATE dead_letter_tasks SET died_at = died_at - interval '31 days' WHERE task_id = %s"
            await connection.execute(sent_back, (old,))

        assert await dead(bench) == [new]
        assert (await replay_all(bench, dry_run=True))["matched"] == 1


class TestPatterns:
    async def test_deaths_alike_are_counted_together(self, bench: Bench, replicated: Replication) -> None:
        for number in range(3):
            await die(bench, message=f"cannot reach 10.0.0.{number}: timeout after {number} s")
        await die(bench, message="disk full")
        await die(bench, "crawl", message="disk full")

        patterns = (await bench.call("GET", "/api/v1/dlq/patterns"))["patterns"]

        told = [(each["task_type"], each["message"], each["count"], each["retriable_count"]) for each in patterns]
        assert told[0] == ("resize", "cannot reach <host>: timeout after <n> s", 3, 3)
        assert sorted(told[1:]) == [("crawl", "disk full", 1, 1), ("resize", "disk full", 1, 1)]
        assert {each["reason"] for each in patterns} == {"retries_exhausted"}
        assert patterns[0]["first_seen"] < patterns[0]["last_seen"]
        assert len({each["pattern"] for each in patterns}) == 3

    async def test_only_what_is_dead_now_counts(self, bench: Bench, replicated: Replication) -> None:
        task_id = await die(bench)
        await die(bench, "crawl")

        await bench.call("POST", f"/api/v1/dlq/{task_id}/replay")

        (left,) = (await bench.call("GET", "/api/v1/dlq/patterns"))["patterns"]
        assert (left["task_type"], left["count"]) == ("crawl", 1)

    async def test_a_pattern_is_new_for_a_day_and_not_new_when_it_comes_back(
        self, bench: Bench, replicated: Replication
    ) -> None:
        task_id = await die(bench)
        assert (await bench.call("GET", "/api/v1/dlq/patterns"))["patterns"][0]["is_new"]
        await bench.call("POST", f"/api/v1/dlq/{task_id}/replay")
        await replicated.done()
        async with replicated.archive.database.session() as connection:
            await connection.execute("UPDATE dead_letter_patterns SET first_seen = first_seen - interval '25 hours'")

        await fail(bench, "resize", "boom")
        (pattern,) = (await bench.call("GET", "/api/v1/dlq/patterns"))["patterns"]

        assert (pattern["is_new"], pattern["count"]) == (False, 1)


class TestReplayOne:
    @pytest.mark.parametrize("is_forgotten", [False, True])
    async def test_a_dead_letter_gets_a_new_life_wherever_its_record_is(
        self, bench: Bench, replicated: Replication, is_forgotten: bool
    ) -> None:
        task_id = await die(bench, priority="low")
        if is_forgotten:
            await replicated.forgotten(task_id)

        answer = await bench.call("POST", f"/api/v1/dlq/{task_id}/replay", {"new_priority": "high"})

        task = await bench.read(task_id)
        assert (answer["task_id"], answer["status"], answer["version"]) == (task_id, "queued", 5)
        assert (task["status"], task["reason"], task["priority"]) == ("queued", "replayed", "high")
        assert (task["retry_count"], task["max_retries"]) == (0, 5)
        assert await dead(bench) == []

    async def test_budgets_can_be_kept(self, bench: Bench, replicated: Replication) -> None:
        task_id = await bench.submit(max_retries=1, backoff={"base_seconds": 0})
        for _ in range(2):
            await fail(bench, "resize", "boom")
        await replicated.forgotten(task_id)

        await bench.call("POST", f"/api/v1/dlq/{task_id}/replay", {"reset_retry_count": False})

        assert (await bench.read(task_id))["retry_count"] == 1

    async def test_only_the_dead_are_replayed(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        live = await bench.submit("crawl")
        task_id = await die(bench)
        await bench.call("POST", f"/api/v1/dlq/{task_id}/replay")

        for other in (live, task_id):
            answer = await http.post(f"/api/v1/dlq/{other}/replay")
            assert assert_problem(answer, 409, "wrong-state")["state"] == "queued"
        assert_problem(await http.post(f"/api/v1/dlq/{NEVER_MADE_ID}/replay"), 404, "task-not-found")
        answer = await http.post(f"/api/v1/dlq/{task_id}/replay", json={"new_priority": "urgent"})
        assert_problem(answer, 422, "unknown-priority")


class TestReplayAll:
    async def test_a_dry_run_counts_and_changes_nothing(self, bench: Bench, kit: Kit, replicated: Replication) -> None:
        for task_type in ("resize", "resize", "crawl"):
            await die(bench, task_type)
        await replicated.done()
        before = await kit.dump()

        answer = await replay_all(bench, filter={"task_type": "resize"}, dry_run=True)

        assert (answer["matched"], answer["replayed"]) == (2, 0)
        assert await kit.dump() == before

    @pytest.mark.parametrize("is_forgotten", [False, True])
    async def test_exactly_what_matches_comes_back_in_the_order_of_deaths(
        self, bench: Bench, replicated: Replication, is_forgotten: bool
    ) -> None:
        died = [await die(bench, "crawl" if number % 3 == 0 else "resize") for number in range(9)]
        wanted = [task_id for number, task_id in enumerate(died) if number % 3]
        if is_forgotten:
            await replicated.forgotten(*died)

        answer = await replay_all(bench, filter={"task_type": "resize"}, new_priority="high")

        assert (answer["matched"], answer["replayed"], answer["refused"]) == (6, 6, 0)
        worker_id = await bench.register()
        came = (await bench.poll(worker_id, available_capacity=20))["tasks"]
        assert [task["task_id"] for task in came] == wanted
        assert sorted(await dead(bench)) == sorted(set(died) - set(wanted))

    async def test_every_kind_of_filter_matches_as_the_list_does(self, bench: Bench, replicated: Replication) -> None:
        for number in range(6):
            await die(bench, ("resize", "crawl")[number % 2], message=("a", "b", "c")[number % 3])
        letters = (await bench.call("GET", "/api/v1/dlq"))["tasks"]
        middle = letters[2]

        for wanted in (
            {"pattern": middle["pattern"]},
            {"reason": "retries_exhausted"},
            {"reason": "poison"},
            {"before": middle["died_at"]},
            {"task_type": "crawl", "reason": "retries_exhausted", "before": middle["died_at"]},
        ):
            listed = await dead(bench, "&".join(f"{name}={value}" for name, value in wanted.items()))
            assert (await replay_all(bench, filter=wanted, dry_run=True))["matched"] == len(listed), wanted

    async def test_pressed_many_times_at_once_each_gets_one_new_life(
        self, bench: Bench, kit: Kit, replicated: Replication
    ) -> None:
        died = [await die(bench) for _ in range(30)]
        await replicated.forgotten(*died[:15])

        answers = await asyncio.gather(*(replay_all(bench) for _ in range(5)))

        assert sum(answer["replayed"] for answer in answers) == 30
        assert await depth(bench) == 30
        await replicated.done()
        lives = [step.reason for task_id in died for step in await replicated.archive.tasks.transitions(task_id)]
        assert Counter(lives)["replayed"] == 30

    async def test_pressed_again_while_history_is_behind_it_replays_nothing_twice(
        self, bench: Bench, replicated: Replication, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The old death is still in history, the store knows better."""
        monkeypatch.setattr("tideq.persistence.dead_letters.replay.CATCH_UP_SECONDS", 0.05)
        died = [await die(bench) for _ in range(3)]
        await replicated.forgotten(*died)
        await replicated.stop()

        first = await replay_all(bench)
        again = await bench.http.post("/api/v1/dlq/replay", json={"filter": {}})

        assert first["replayed"] == 3
        assert_problem(again, 503, "history-unavailable")
        assert await depth(bench) == 3

    @pytest.mark.parametrize("has_died_again", [False, True])
    async def test_what_the_store_knows_better_is_left_alone(
        self, bench: Bench, replicated: Replication, monkeypatch: pytest.MonkeyPatch, has_died_again: bool
    ) -> None:
        """It was replayed since history was asked, and may be dead again: that is another death, which nobody saw."""

        async def all_is_well(seconds: float) -> bool:
            return True

        task_id = await die(bench)
        await replicated.done()
        await replicated.stop()
        await bench.call("POST", f"/api/v1/dlq/{task_id}/replay")
        if has_died_again:
            await fail(bench, "resize", "boom")
        monkeypatch.setattr(replicated.archive.lag, "wait_until_caught_up", all_is_well)

        answer = await replay_all(bench)

        assert (answer["matched"], answer["replayed"]) == (1, 0)
        assert (await bench.read(task_id))["status"] == ("dead_letter" if has_died_again else "queued")

    async def test_a_purged_dead_letter_does_not_rise(self, bench: Bench, replicated: Replication) -> None:
        died = [await die(bench) for _ in range(4)]
        for task_id in died[:2]:
            await bench.call("DELETE", f"/api/v1/tasks/{task_id}?purge=true")

        answer = await replay_all(bench)

        assert answer["replayed"] == 2
        assert await depth(bench) == 2

    async def test_many_are_replayed_in_batches(
        self, bench: Bench, replicated: Replication, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tideq.persistence.dead_letters.replay.BATCH_SIZE", 7)
        tasks = [{"task_type": "resize", "max_retries": 0} for _ in range(40)]
        await bench.call("POST", "/api/v1/tasks/batch", {"tasks": tasks})
        worker_id = await bench.register(capacity=50)
        held = (await bench.poll(worker_id, available_capacity=50))["tasks"]
        starts = [{"task_id": task["task_id"], "lease": task["lease"]} for task in held]
        results = [{**each, "status": "failed", "error": {"message": "all at once"}} for each in starts]
        await bench.sync(worker_id, starts=starts, results=results)

        answer = await replay_all(bench)

        assert (answer["matched"], answer["replayed"]) == (40, 40)
        assert await depth(bench) == 40

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{}",
            b'{"filter": null}',
            b'{"filter": {"task_typ": "resize"}}',
            b'{"filter": {"reason": "dull"}}',
            b'{"filter": {"pattern": "x"}}',
            b'{"filter": {}, "new_priority": "urgent"}',
            b'{"filter": {}, "everything": true}',
        ],
    )
    async def test_a_request_that_is_not_clear_replays_nothing(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication, body: bytes
    ) -> None:
        await die(bench)

        answer = await http.post("/api/v1/dlq/replay", content=body)

        assert answer.status_code in (400, 422), answer.text
        assert await depth(bench) == 0


class TestWithoutHistory:
    @pytest.fixture
    def has_history(self) -> bool:
        return False

    async def test_it_is_said_what_to_set(self, http: httpx.AsyncClient) -> None:
        for method, path in (
            ("GET", "/api/v1/tasks"),
            ("DELETE", "/api/v1/tasks?older_than=1d"),
            ("GET", "/api/v1/dlq"),
            ("GET", "/api/v1/dlq/patterns"),
        ):
            answer = await http.request(method, path)
            assert "DATABASE_URL" in assert_problem(answer, 503, "history-unavailable")["detail"]
        answer = await http.post("/api/v1/dlq/replay", json={"filter": {}})
        assert "DATABASE_URL" in assert_problem(answer, 503, "history-unavailable")["detail"]

    async def test_one_dead_letter_can_be_replayed_all_the_same(self, bench: Bench, http: httpx.AsyncClient) -> None:
        task_id = await die(bench)

        await bench.call("POST", f"/api/v1/dlq/{task_id}/replay")

        assert (await bench.read(task_id))["status"] == "queued"
        answer = await http.get(f"/api/v1/tasks/{task_id}?include_history=true")
        assert_problem(answer, 503, "history-unavailable")
        assert_problem(await http.get(f"/api/v1/tasks/{NEVER_MADE_ID}"), 404, "task-not-found")
