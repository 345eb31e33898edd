"""Lists, searches and tasks that only history has, over HTTP, with a replicator at work."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.api.bench import Bench, Json, assert_problem
from tests.api.replication import Replication
from tests.kit import Kit
from tideq.api.service import Service
from tideq.persistence.database import Database
from tideq.queue_core.settings import QueueSettings, Retention
from tideq.queue_core.task_id import TaskIds

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OLD_ID = "0192f0c1-2b3c-7d4e-8f50-112233445566"


@pytest.fixture
def has_history() -> bool:
    return True


@pytest.fixture
def settings() -> QueueSettings:
    """Finished tasks are forgotten with the next sweep after history has them."""
    return QueueSettings(retention=Retention(result_ttl_ms=20))


async def ids(bench: Bench, query: str = "") -> list[str]:
    return [task["task_id"] for task in (await bench.call("GET", f"/api/v1/tasks?{query}"))["tasks"]]


async def complete(bench: Bench, result: Any = None, **worker: Any) -> str:
    """The next task, done by a worker of its own."""
    worker_id = await bench.register(**worker)
    task = await bench.started(worker_id)
    await bench.tell(worker_id, "result", task, status="completed", result=result)
    return task["task_id"]


async def fail(bench: Bench, message: str, *, retriable: bool = True) -> Json:
    worker_id = await bench.register()
    task = await bench.started(worker_id)
    error = {"message": message, "code": "E7", "retriable": retriable, "details": {"at": 3}}
    await bench.tell(worker_id, "result", task, status="failed", error=error)
    return task


class TestLists:
    async def test_a_list_sees_what_was_submitted_just_before(self, bench: Bench, replicated: Replication) -> None:
        for _ in range(20):
            task_id = await bench.submit()

            assert (await ids(bench))[0] == task_id

    async def test_a_list_shows_tasks_as_reading_them_does(self, bench: Bench, replicated: Replication) -> None:
        fields: Json = {
            "parameters": {"width": 640},
            "priority": "high",
            "required_capabilities": ["gpu"],
            "tags": {"customer": "c-118"},
            "idempotency_key": "k",
            "backoff": {"base_seconds": 3},
            "head_start_seconds": 5,
            "delay_seconds": 60,
        }
        task_id = await bench.submit(**fields)

        (listed,) = (await bench.call("GET", "/api/v1/tasks"))["tasks"]

        moving = ("current_state_duration_seconds", "queue_score", "queue_position")
        told = await bench.read(task_id)
        assert {k: v for k, v in listed.items() if k not in moving} == {
            k: v for k, v in told.items() if k not in moving
        }

    async def test_a_task_is_found_by_the_trace_it_is_shown_with_also_by_one_of_its_own(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        posted = await http.post("/api/v1/tasks", json={"task_type": "a"}, headers={"traceparent": TRACEPARENT})
        traced, plain = posted.json()["task_id"], await bench.submit("b")

        listed = {task["task_id"]: task["trace_id"] for task in (await bench.call("GET", "/api/v1/tasks"))["tasks"]}
        recorded = await bench.call("GET", f"/api/v1/tasks/{plain}?include_history=true")

        assert listed == {traced: TRACEPARENT[3:35], plain: plain.replace("-", "")}
        assert recorded["trace_id"] == listed[plain]
        assert await ids(bench, f"trace_id={listed[traced]}") == [traced]
        assert await ids(bench, f"trace_id={listed[plain]}") == [plain]
        assert (await bench.call("GET", f"/api/v1/tasks?count=true&trace_id={listed[plain]}"))["total"] == 1
        assert await ids(bench, f"trace_id={traced.replace('-', '')}") == []

    async def test_pages_follow_each_other_by_cursor_and_by_link(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        submitted = [await bench.submit(tags={"run": "a:b&c"}) for _ in range(7)]
        found: list[str] = []
        path = f"/api/v1/tasks?limit=3&tag={quote('run:a:b&c')}"

        while path:
            answer = await http.get(path)
            page = answer.json()
            found += [task["task_id"] for task in page["tasks"]]
            link = re.fullmatch(r'<(.+)>; rel="next"', answer.headers.get("link", ""))
            assert (link is None) == (page["next_cursor"] is None)
            assert link is None or page["next_cursor"] in link[1]
            path = link[1] if link else ""

        assert found == submitted[::-1]

    @pytest.mark.parametrize(
        "query",
        [
            "status=queued",
            "status=queued&status=failed",
            "task_type=resize",
            "task_type=resize&status=queued",
            "priority=high",
            "tag=customer:c-1",
            "tag=customer:c-1&tag=env:prod",
            "trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
            "task_type=resize&parameter=width:640",
            "task_type=resize&parameter=label:wide",
            "status=queued&created_before=2100-01-01T00:00:00%2B01:00",
            "status=queued&tag=env:prod&priority=high&task_type=resize&created_after=2020-01-01T00:00:00Z",
        ],
    )
    async def test_a_filter_finds_the_task_that_it_describes_and_no_other(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication, query: str
    ) -> None:
        wanted = {
            "task_type": "resize",
            "parameters": {"width": 640, "label": "wide", "nested": {"a": 1}},
            "priority": "high",
            "tags": {"customer": "c-1", "env": "prod"},
        }
        answer = await http.post("/api/v1/tasks", json=wanted, headers={"traceparent": TRACEPARENT})
        await bench.submit("crawl", tags={"customer": "c-2"}, parameters={"width": 640})
        await complete(bench, task_types=["crawl"])

        assert await ids(bench, query) == [answer.json()["task_id"]]

    async def test_tasks_are_found_by_who_did_them_and_by_what_went_wrong(
        self, bench: Bench, replicated: Replication
    ) -> None:
        await bench.submit(max_retries=0)
        await bench.submit(max_retries=3)
        first = await fail(bench, "Upstream refused: connection to host lost")
        second = await fail(bench, "disk full")
        (holder,) = {(await bench.read(first["task_id"]))["assigned_worker_id"]}

        assert await ids(bench, "error=refused+UPSTREAM") == [first["task_id"]]
        assert await ids(bench, "error=disk") == [second["task_id"]]
        assert await ids(bench, "error=e7&status=dead_letter") == [first["task_id"]]
        assert await ids(bench, "error=disk+refused") == []
        assert await ids(bench, f"worker_id={holder}") == [first["task_id"]]

    async def test_times_of_creation_bound_a_list_exactly(self, bench: Bench, replicated: Replication) -> None:
        submitted: list[str] = []
        for _ in range(5):
            submitted.append(await bench.submit())
            await asyncio.sleep(0.002)
        middle = (await bench.read(submitted[2]))["created_at"]

        after, before = await ids(bench, f"created_after={middle}"), await ids(bench, f"created_before={middle}")

        assert after == submitted[:1:-1]
        assert before == submitted[1::-1]

    async def test_a_count_comes_along_if_asked_for(self, bench: Bench, replicated: Replication) -> None:
        for _ in range(5):
            await bench.submit()

        plain = await bench.call("GET", "/api/v1/tasks?limit=2")
        counted = await bench.call("GET", "/api/v1/tasks?limit=2&count=true&status=queued")

        assert "total" not in plain
        assert (counted["total"], counted["total_is_exact"], len(counted["tasks"])) == (5, True, 2)

    async def test_a_page_ends_before_it_weighs_too_much(
        self, bench: Bench, replicated: Replication, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tideq.persistence.read.task_list.MAX_PAGE_BYTES", 300_000)
        submitted = [await bench.submit(parameters={"text": "x" * 100_000}) for _ in range(7)]

        pages = [await bench.call("GET", "/api/v1/tasks")]
        while cursor := pages[-1]["next_cursor"]:
            pages.append(await bench.call("GET", f"/api/v1/tasks?cursor={cursor}"))

        assert [task["task_id"] for page in pages for task in page["tasks"]] == submitted[::-1]
        assert [len(page["tasks"]) for page in pages] == [3, 3, 1]

    @pytest.mark.parametrize(
        "cursor", ["x", "AAAA", "%00", "é", "A" * 32, "A" * 43, "=" * 8, "../../x", "A" * 101, "{flipped}", "{other}"]
    )
    async def test_a_cursor_that_is_not_ours_is_refused(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication, cursor: str
    ) -> None:
        for _ in range(2):
            await bench.submit()
        ours = (await bench.call("GET", "/api/v1/tasks?limit=1"))["next_cursor"]
        flipped = ("A" if ours[0] != "A" else "B") + ours[1:]
        other = (await bench.call("GET", "/api/v1/tasks?limit=1&status=queued"))["next_cursor"]

        answer = await http.get(f"/api/v1/tasks?limit=1&cursor={cursor.format(flipped=flipped, other=other)}")

        assert_problem(answer, 400)
        assert (await http.get(f"/api/v1/tasks?limit=5&cursor={ours}")).status_code == 200

    @pytest.mark.parametrize(
        "query",
        [
            "status=sleeping",
            "limit=0",
            "limit=501",
            "limit=many",
            "tag=nocolon",
            "tag=%00:x",
            "tag=a:%00",
            "task_type=a%00",
            "task_type=re+size",
            "worker_id=a%00b",
            "priority=%00",
            "trace_id=xyz",
            "trace_id=4BF92F3577B34DA6A3CE929D0E0E4736",
            "created_after=yesterday",
            "error=%00",
            "error=!!!",
            "parameter=width:640",
            "task_type=crawl&parameter=width:640",
            "task_type=resize&parameter=height:640",
            "count=perhaps",
            "staus=failed",
        ],
    )
    async def test_a_value_that_no_filter_takes_is_refused(self, http: httpx.AsyncClient, query: str) -> None:
        assert_problem(await http.get(f"/api/v1/tasks?{query}"), 400)

    @pytest.mark.parametrize(
        "query",
        [
            "created_after=0001-01-01T00:00:00Z",
            "created_before=9999-12-31T23:59:59.999999Z",
            "created_after=2030-01-01T00:00:00Z&created_before=2020-01-01T00:00:00Z",
            "tag=a:",
            f"tag=a:{quote('ü' * 200)}",
            f"error={quote('naïve ' * 60)}",
            "status=queued&status=queued&status=queued",
            "limit=500",
        ],
    )
    async def test_an_odd_value_is_taken_all_the_same(self, bench: Bench, query: str) -> None:
        await bench.call("GET", f"/api/v1/tasks?{query}")

    async def test_a_list_without_a_replicator_is_behind_and_still_answers(self, bench: Bench) -> None:
        await bench.submit()

        assert await ids(bench) == []


class TestSearchableParameters:
    async def test_texts_numbers_and_truth_values_are_found_and_structures_are_not(
        self, bench: Bench, replicated: Replication
    ) -> None:
        ids_by_width = {
            str(width): await bench.submit(parameters={"width": width})
            for width in (640, 1.5, -3, True, False, "wide", "naïve ☃", "", None, [1], {"a": 1})
        }

        async def found(value: str) -> list[str]:
            return await ids(bench, f"task_type=resize&parameter=width:{quote(value)}")

        for written, value in {"640": "640", "1.5": "1.5", "-3": "-3", "true": "True", "false": "False"}.items():
            assert await found(written) == [ids_by_width[value]]
        for text in ("wide", "naïve ☃", ""):
            assert await found(text) == [ids_by_width[text]]
        for nothing in ("null", "[1]", '{"a":1}', "None"):
            assert await found(nothing) == []

    async def test_a_batch_is_searchable_too(self, bench: Bench, replicated: Replication) -> None:
        tasks = [{"task_type": "resize", "parameters": {"label": label}} for label in ("a", "b")]
        batch = (await bench.call("POST", "/api/v1/tasks/batch", {"tasks": tasks}))["tasks"]

        assert await ids(bench, "task_type=resize&parameter=label:b") == [batch[1]["task_id"]]


class TestForgottenTasks:
    """The store has none of them any more; nobody who asks can tell."""

    async def test_a_task_reads_the_same_before_and_after(self, bench: Bench, replicated: Replication) -> None:
        task_id = await bench.submit(parameters={"a": 1.0}, tags={"x": "y"}, max_retries=1, backoff={"base_seconds": 0})
        await fail(bench, "first")
        await complete(bench, {"big": 10**17})
        before = await bench.read(task_id)

        await replicated.forgotten(task_id)
        after = await bench.read(task_id)

        assert before.pop("current_state_duration_seconds") >= 0
        assert after.pop("current_state_duration_seconds") >= 0
        assert after == before
        assert [error["message"] for error in after["errors"]] == ["first"]

    async def test_waiting_and_explaining_answer_at_once(self, bench: Bench, replicated: Replication) -> None:
        task_id = await bench.submit()
        await complete(bench)
        await replicated.forgotten(task_id)

        waited = await bench.call("GET", f"/api/v1/tasks/{task_id}/wait")
        explained = await bench.call("GET", f"/api/v1/tasks/{task_id}/explain")

        assert waited["status"] == explained["status"] == "completed"
        assert explained["blocked_by"] == []

    async def test_cancelling_it_is_a_conflict(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        task_id = await bench.submit()
        await complete(bench)
        await replicated.forgotten(task_id)

        answer = await http.delete(f"/api/v1/tasks/{task_id}")

        assert assert_problem(answer, 409, "wrong-state")["state"] == "completed"

    async def test_retrying_brings_it_back_and_its_history_goes_on(self, bench: Bench, replicated: Replication) -> None:
        task_id = await bench.submit(parameters={"a": 1})
        await fail(bench, "no", retriable=False)
        await replicated.forgotten(task_id)

        answer = await bench.call("POST", f"/api/v1/tasks/{task_id}/retry", {"new_priority": "high"})
        assert await complete(bench) == task_id
        told = await bench.call("GET", f"/api/v1/tasks/{task_id}?include_history=true")

        assert (answer["status"], answer["version"]) == ("queued", 5)
        assert (told["priority"], told["parameters"], told["status"]) == ("high", {"a": 1}, "completed")
        assert [step["version"] for step in told["state_history"]] == list(range(1, 9))
        assert [step["state"] for step in told["state_history"]][3:5] == ["failed", "queued"]

    async def test_retrying_what_completed_is_a_conflict(
        self, bench: Bench, http: httpx.AsyncClient, replicated: Replication
    ) -> None:
        task_id = await bench.submit()
        await complete(bench)
        await replicated.forgotten(task_id)

        assert_problem(await http.post(f"/api/v1/tasks/{task_id}/retry"), 409, "wrong-state")

    @pytest.mark.parametrize("task_id", [OLD_ID, "nonsense", "0", OLD_ID.upper(), "%00"])
    async def test_an_id_that_never_was_is_not_found(
        self, http: httpx.AsyncClient, replicated: Replication, task_id: str
    ) -> None:
        for path in ("", "/wait", "/explain", "?include_history=true"):
            assert_problem(await http.get(f"/api/v1/tasks/{task_id}{path}"), 404, "task-not-found")
        for query in ("", "?purge=true"):
            assert_problem(await http.delete(f"/api/v1/tasks/{task_id}{query}"), 404, "task-not-found")
        assert_problem(await http.post(f"/api/v1/tasks/{task_id}/retry"), 404, "task-not-found")

    async def test_every_acknowledged_id_can_be_read_at_any_moment(
        self, bench: Bench, service: Service, replicated: Replication
    ) -> None:
        """Through submission, execution, replication and forgetting, which go on meanwhile."""
        known: list[str] = []
        is_over = asyncio.Event()

        async def produce() -> None:
            while not is_over.is_set():
                known.append(await bench.submit())
                await complete(bench)

        async def forget() -> None:
            while not is_over.is_set():
                await service.engine.queue.sweep()
                await asyncio.sleep(0)

        async def look() -> None:
            """Until many that were looked at again and again are forgotten."""
            while not known or (await service.engine.queue.read_many(list(known))).count(None) < 20:
                for task_id in known[-5:]:
                    assert (await bench.read(task_id))["task_id"] == task_id
                await asyncio.sleep(0)
            is_over.set()

        await asyncio.gather(produce(), forget(), look())


class TestHistoryOfATask:
    async def test_every_transition_is_told_in_order(self, bench: Bench, replicated: Replication) -> None:
        task_id = await bench.submit(backoff={"base_seconds": 0}, max_retries=2)
        first = await fail(bench, "boom")
        await complete(bench)

        told = await bench.call("GET", f"/api/v1/tasks/{task_id}?include_history=true")

        steps = told["state_history"]
        assert [(step["version"], step["state"], step["reason"], step["attempt"]) for step in steps] == [
            (1, "queued", "submitted", 0),
            (2, "assigned", "claimed", 1),
            (3, "executing", "started", 1),
            (4, "queued", "error", 1),
            (5, "assigned", "claimed", 2),
            (6, "executing", "started", 2),
            (7, "completed", "succeeded", 2),
        ]
        assert steps[3]["error"]["message"] == "boom"
        assert [step["error"] for step in steps if step["version"] != 4] == [None] * 6
        assert steps[0]["worker_id"] is None
        assert steps[1]["worker_id"] == steps[2]["worker_id"] != steps[5]["worker_id"]
        assert [step["at"] for step in steps] == sorted(step["at"] for step in steps)
        assert told["history_lag_seconds"] == 0
        assert told["task_id"] == first["task_id"]

    async def test_it_is_complete_the_moment_a_transition_is_answered(
        self, bench: Bench, replicated: Replication
    ) -> None:
        for _ in range(10):
            task_id = await bench.submit()

            told = await bench.call("GET", f"/api/v1/tasks/{task_id}?include_history=true")

            assert [step["version"] for step in told["state_history"]] == [told["version"]] == [1]

    async def test_history_that_is_behind_says_how_far(
        self, bench: Bench, kit: Kit, replicated: Replication, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tideq.persistence.read.expired_tasks.CATCH_UP_SECONDS", 0.1)
        task_id = await bench.submit()
        await replicated.done()
        await replicated.stop()
        worker_id = await bench.register()
        await bench.started(worker_id)
        await kit.clock.advance(7_000)

        told = await bench.call("GET", f"/api/v1/tasks/{task_id}?include_history=true")

        assert told["status"] == "executing"
        assert [step["version"] for step in told["state_history"]] == [1]
        assert 7 <= told["history_lag_seconds"] < 60


class TestChosenIds:
    async def test_an_id_that_only_history_knows_is_answered_as_known(
        self, bench: Bench, replicated: Replication
    ) -> None:
        await bench.submit(task_id=OLD_ID)
        await complete(bench)
        await replicated.forgotten(OLD_ID)

        again = await bench.call("POST", "/api/v1/tasks", {"task_type": "resize", "task_id": OLD_ID})

        assert (again["task_id"], again["status"]) == (OLD_ID, "completed")
        assert (await bench.call("GET", "/api/v1/queue/stats"))["queue"]["total_depth"] == 0

    async def test_in_a_batch_only_the_new_ones_are_taken(self, bench: Bench, replicated: Replication) -> None:
        await bench.submit(task_id=OLD_ID)
        await complete(bench)
        await replicated.forgotten(OLD_ID)
        own = TaskIds(clock_ms=lambda: 1_600_000_000_000).new()
        tasks: list[Json] = [
            {"task_type": "resize"},
            {"task_type": "resize", "task_id": OLD_ID},
            {"task_type": "resize", "task_id": own},
        ]

        answers = (await bench.call("POST", "/api/v1/tasks/batch", {"tasks": tasks}))["tasks"]

        assert [answer["task_id"] for answer in answers][1:] == [OLD_ID, own]
        assert [answer["status"] for answer in answers] == ["queued", "completed", "queued"]
        assert (await bench.call("GET", "/api/v1/queue/stats"))["queue"]["total_depth"] == 2

    async def test_a_purged_id_is_free_at_once(self, bench: Bench, replicated: Replication) -> None:
        for _ in range(3):
            await bench.submit(task_id=OLD_ID)
            assert await complete(bench) == OLD_ID
            await replicated.done()
            await bench.call("DELETE", f"/api/v1/tasks/{OLD_ID}?purge=true")

    async def test_an_idempotency_key_outlives_its_record(self, bench: Bench, replicated: Replication) -> None:
        task_id = await bench.submit(idempotency_key="k")
        await complete(bench)
        await replicated.forgotten(task_id)

        again = await bench.call("POST", "/api/v1/tasks", {"task_type": "resize", "idempotency_key": "k"})

        assert (again["task_id"], again["status"]) == (task_id, "completed")


class TestWithoutPostgres:
    """Configured, and not to be reached: what only history could answer is 503, everything else goes on."""

    @pytest.fixture
    async def away(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
        monkeypatch.setattr("tideq.persistence.database.WAIT_SECONDS", 0.1)
        assert service.history is not None
        nowhere = Database("postgresql://tideq@127.0.0.1:1/tideq", service.settings.queue.queue_name)
        for part in (service.history.tasks, service.history.listing, service.history.dead_letters):
            monkeypatch.setattr(part, "_database", nowhere)
        monkeypatch.setattr(service.history.checkpoints, "_database", nowhere)
        async with nowhere:
            yield

    @pytest.mark.parametrize(
        "path",
        [
            "/api/v1/tasks",
            f"/api/v1/tasks/{OLD_ID}",
            f"/api/v1/tasks/{OLD_ID}/wait",
            f"/api/v1/tasks/{OLD_ID}/explain",
            "/api/v1/dlq",
            "/api/v1/dlq/patterns",
        ],
    )
    async def test_nothing_reads_as_missing(self, http: httpx.AsyncClient, away: None, path: str) -> None:
        answer = await http.get(path)

        assert_problem(answer, 503, "history-unavailable")
        assert answer.headers["retry-after"]

    async def test_live_tasks_are_read_and_new_ones_taken(
        self, bench: Bench, http: httpx.AsyncClient, away: None
    ) -> None:
        """But none whose id was chosen, old or new: only history knows whether such a task ran already."""
        task_id = await bench.submit()

        assert (await bench.read(task_id))["status"] == "queued"
        for chosen in (OLD_ID, TaskIds().new()):
            answer = await http.post("/api/v1/tasks", json={"task_type": "resize", "task_id": chosen})
            assert_problem(answer, 503, "history-unavailable")
