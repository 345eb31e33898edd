"""Submitting over HTTP: what goes in comes back, once, or not at all."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest

from tests.api.bench import Bench, assert_problem
from tests.kit import Kit
from tideq.queue_core.settings import Admission, QueueSettings

TASKS = "/api/v1/tasks"
BATCH = "/api/v1/tasks/batch"
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"

DOCUMENTS = {
    "a big integer": b'{"n": 123456789012345678901234567890}',
    "a long fraction": b'{"n": 0.1000000000000000055511151231257827, "m": 1E+2, "z": -0}',
    "odd whitespace": b'{ "a"\t:\r\n [ 1 ,2,\t3 ] ,"b":{  } }',
    "unsorted keys": b'{"z":1,"a":2,"m":{"y":1,"b":2}}',
    "a key twice": b'{"a":1,"a":2}',
    "escapes as written": b'{"a":"\\u0041\\/\\n","\\u00e9":"\xc3\xa9","pair":"\\ud83d\\ude00"}',
    "brackets in a text": b'{"a":"' + b"[{" * 5000 + b'"}',
    "quotes and brackets in a text": b'{"a":"\\"' + b"[\\\\" * 100 + b'"}',
    "an escaped backslash before u0000": b'{"path":"C:\\\\u0000"}',
    "thirty levels": b'{"a":' + b"[" * 30 + b"]" * 30 + b"}",
}


async def _submit_raw(http: httpx.AsyncClient, parameters: bytes) -> str:
    answer = await http.post(TASKS, content=b'{"task_type":"resize","parameters":%b}' % parameters)
    assert answer.status_code == 201, answer.text
    return answer.json()["task_id"]


async def test_a_submission_is_answered_with_the_task_and_where_it_is(http: httpx.AsyncClient, bench: Bench) -> None:
    answer = await http.post(TASKS, json={"task_type": "resize", "parameters": {"width": 640}})

    document = answer.json()
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["location"] == f"{TASKS}/{document['task_id']}"
    assert document.keys() >= {"task_id", "status", "queue_score", "queue_position", "estimated_wait_seconds"}
    assert (document["status"], document["queue_position"]) == ("queued", 0)
    assert (await http.get(answer.headers["location"])).json()["task_id"] == document["task_id"]


async def test_later_submissions_stand_further_back_and_score_higher(http: httpx.AsyncClient, bench: Bench) -> None:
    low, high = [
        (await http.post(TASKS, json={"task_type": "resize", "priority": priority})).json()
        for priority in ("low", "high")
    ]
    next_low = (await http.post(TASKS, json={"task_type": "resize", "priority": "low"})).json()

    assert (low["queue_position"], high["queue_position"], next_low["queue_position"]) == (0, 0, 2)
    assert high["queue_score"] < low["queue_score"] < next_low["queue_score"] + 1


@pytest.mark.parametrize("parameters", DOCUMENTS.values(), ids=DOCUMENTS)
async def test_parameters_are_kept_byte_for_byte(http: httpx.AsyncClient, bench: Bench, parameters: bytes) -> None:
    task_id = await _submit_raw(http, parameters)
    worker_id = await bench.register()

    read = (await http.get(f"{TASKS}/{task_id}")).content
    polled = (await http.post(f"/internal/workers/{worker_id}/poll", json={"available_capacity": 1})).content

    assert parameters in read
    assert parameters in polled
    assert bytes(msgspec.json.decode(read, type=dict[str, msgspec.Raw])["parameters"]) == parameters


async def test_every_field_of_a_submission_is_read_back(bench: Bench) -> None:
    run_at = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    submission: dict[str, Any] = {
        "parameters": {"a": 1},
        "priority": "high",
        "required_capabilities": ["gpu", "big"],
        "timeout_seconds": 12.5,
        "max_retries": 7,
        "run_at": run_at.isoformat().replace("+00:00", "Z"),
        "idempotency_key": "k1",
        "tags": {"tenant": "shop", "note": "é ü | {}"},
        "backoff": {"base_seconds": 1, "multiplier": 3, "cap_seconds": 60},
        "head_start_seconds": 30,
        "client_id": "mill",
    }

    task = await bench.read(await bench.submit("resize", **submission))

    missing = submission.keys() - task.keys()
    assert not missing, f"SPEC 3 says all of a submission is read back: {sorted(missing)}"
    assert task["required_capabilities"] == ["big", "gpu"]
    assert {name: task[name] for name in submission if name not in ("required_capabilities", "run_at")} == {
        name: value for name, value in submission.items() if name not in ("required_capabilities", "run_at")
    }
    assert datetime.fromisoformat(task["run_at"]) == run_at


async def test_what_was_submitted_decides_what_is_kept(bench: Bench) -> None:
    task_id = await bench.submit(
        "resize",
        priority="high",
        required_capabilities=["gpu", "big"],
        timeout_seconds=12.5,
        max_retries=7,
        tags={"tenant": "shop"},
        client_id="mill",
        idempotency_key="k",
    )

    task = await bench.read(task_id)

    expected = {
        "task_type": "resize",
        "status": "queued",
        "priority": "high",
        "required_capabilities": ["big", "gpu"],
        "timeout_seconds": 12.5,
        "max_retries": 7,
        "tags": {"tenant": "shop"},
        "client_id": "mill",
        "idempotency_key": "k",
        "version": 1,
        "attempt": 0,
        "retry_count": 0,
        "losses": 0,
        "deliveries": 0,
        "queue_position": 0,
        "result": None,
        "error": None,
        "errors": [],
        "progress": None,
        "started_at": None,
        "completed_at": None,
        "assigned_worker_id": None,
    }
    assert {name: task[name] for name in expected} == expected
    assert task["created_at"].endswith("Z")
    assert task["current_state_duration_seconds"] < 60


async def test_what_is_left_out_takes_its_default(bench: Bench) -> None:
    task = await bench.read(await bench.submit("resize"))

    assert (task["priority"], task["max_retries"], task["timeout_seconds"]) == ("medium", 3, 600)
    assert (task["parameters"], task["tags"], task["required_capabilities"]) == ({}, {}, [])
    assert (task["client_id"], task["idempotency_key"], task["trace_is_sampled"]) == ("anonymous", None, False)


async def test_a_task_without_a_trace_has_one_of_its_own(bench: Bench) -> None:
    worker_id = await bench.register()
    task_id = await bench.submit("resize")
    digits = task_id.replace("-", "")

    given = await bench.claimed(worker_id)
    read = await bench.read(task_id)

    assert (given["trace_id"], read["trace_id"]) == (digits, digits)
    assert (given["traceparent"], read["trace_is_sampled"]) == (None, False)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("shape", ["Z", "+00:00", "offset", "naive"])
async def test_run_at_is_an_instant_however_it_is_written(bench: Bench, shape: str) -> None:
    instant = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)
    written = {
        "Z": instant.isoformat().replace("+00:00", "Z"),
        "+00:00": instant.isoformat(),
        "offset": (instant + timedelta(hours=5, minutes=30)).replace(tzinfo=None).isoformat() + "+05:30",
        "naive": instant.replace(tzinfo=None).isoformat(),
    }[shape]

    task = await bench.read(await bench.submit(run_at=written))

    assert datetime.fromisoformat(task["visible_at"]) == instant


async def test_a_delay_hides_a_task_for_as_long(bench: Bench) -> None:
    task = await bench.read(await bench.submit(delay_seconds=90.5))

    hidden = datetime.fromisoformat(task["visible_at"]) - datetime.fromisoformat(task["created_at"])
    assert hidden == timedelta(seconds=90.5)


async def test_a_chosen_task_id_is_the_tasks_and_submitting_it_again_makes_no_other(bench: Bench, kit: Kit) -> None:
    chosen = "0192f0c1-2b3c-7d4e-8f50-002233445566"

    ids = [await bench.submit(task_id=chosen) for _ in range(2)]

    assert ids == [chosen, chosen]
    assert (await kit.insight.stats()).total_depth == 1


@pytest.mark.parametrize("repeated_as", ["quoted", "bare", "body"])
@pytest.mark.parametrize("first_as", ["quoted", "bare", "body"])
async def test_an_idempotency_key_means_the_same_however_it_comes(
    http: httpx.AsyncClient, kit: Kit, first_as: str, repeated_as: str
) -> None:
    key = "order-1"

    answers = [await _with_key(http, way, key) for way in (first_as, repeated_as)]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["task_id"] == answers[1].json()["task_id"]
    assert answers[0].headers["location"] == answers[1].headers["location"]
    assert (await kit.insight.stats()).total_depth == 1
    assert (await kit.read(answers[0].json()["task_id"])).definition.idempotency_key == key


async def _with_key(http: httpx.AsyncClient, way: str, key: str) -> httpx.Response:
    body = {"task_type": "resize", "parameters": {"a": 1}}
    if way == "body":
        return await http.post(TASKS, json={**body, "idempotency_key": key})
    return await http.post(TASKS, json=body, headers={"Idempotency-Key": f'"{key}"' if way == "quoted" else key})


@pytest.mark.parametrize(
    "other", [{"parameters": {"a": 2}}, {"task_type": "crawl"}, {"priority": "high"}, {"delay_seconds": 5}], ids=str
)
async def test_an_idempotency_key_with_another_body_is_refused_and_changes_nothing(
    http: httpx.AsyncClient, bench: Bench, kit: Kit, other: dict[str, Any]
) -> None:
    body: dict[str, Any] = {"task_type": "resize", "parameters": {"a": 1}, "idempotency_key": "k"}
    task_id = await bench.submit(**body)
    before = await kit.dump()

    answer = await http.post(TASKS, json=body | other)

    assert assert_problem(answer, 422, "idempotency-conflict")["task_id"] == task_id
    assert await kit.dump() == before


async def test_a_repeated_submission_tells_how_its_task_is_by_now(
    http: httpx.AsyncClient, bench: Bench, kit: Kit
) -> None:
    body = {"task_type": "resize", "idempotency_key": "k"}
    task_id = await bench.submit(**body)
    await kit.worker()
    await kit.complete(await kit.started())

    answer = (await http.post(TASKS, json=body)).json()

    assert (answer["task_id"], answer["status"]) == (task_id, "completed")


async def test_a_repeat_in_another_trace_is_still_a_repeat(http: httpx.AsyncClient, kit: Kit) -> None:
    body = {"task_type": "resize", "idempotency_key": "k"}

    answers = [
        await http.post(TASKS, json=body, headers={"traceparent": TRACEPARENT[:-2] + end}) for end in ["01", "02"]
    ]

    assert len({answer.json()["task_id"] for answer in answers}) == 1


async def test_an_empty_idempotency_key_is_refused_wherever_it_comes(http: httpx.AsyncClient, kit: Kit) -> None:
    answers = [
        await http.post(TASKS, json={"task_type": "resize"}, headers={"Idempotency-Key": ""}),
        await http.post(TASKS, json={"task_type": "resize"}, headers={"Idempotency-Key": '""'}),
        await http.post(TASKS, json={"task_type": "resize", "idempotency_key": ""}),
    ]

    assert [answer.status_code for answer in answers] == [422, 422, 422]


async def test_a_batch_is_answered_in_order(http: httpx.AsyncClient, bench: Bench) -> None:
    answer = await http.post(BATCH, json={"tasks": [{"task_type": name} for name in ("a", "b", "c")]})

    tasks = answer.json()["tasks"]
    assert answer.status_code == 201
    assert [(await bench.read(task["task_id"]))["task_type"] for task in tasks] == ["a", "b", "c"]
    assert {task["status"] for task in tasks} == {"queued"}


async def test_a_batch_of_a_thousand_is_taken(http: httpx.AsyncClient, kit: Kit) -> None:
    answer = await http.post(BATCH, json={"tasks": [{"task_type": "resize"}] * 1000})

    assert len({task["task_id"] for task in answer.json()["tasks"]}) == 1000
    assert (await kit.insight.stats()).total_depth == 1000


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        ({"task_type": "a b"}, 422),
        ({"task_type": "resize", "priority": "urgent"}, 422),
        ({"task_type": "resize", "idempotency_key": "known", "parameters": {"other": 1}}, 422),
        ({"task_type": "resize", "client_id": "another"}, 422),
        ({"task_type": "resize", "parameters": {"a": "x" * 300_000}}, 413),
        ({"task_type": "resize", "parameters": {"a": "\0"}}, 422),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_one_bad_task_refuses_the_whole_batch(
    http: httpx.AsyncClient, bench: Bench, kit: Kit, bad: dict[str, Any], status: int
) -> None:
    await bench.submit(idempotency_key="known")
    before = await kit.dump()

    answer = await http.post(BATCH, json={"tasks": [{"task_type": "resize"}, {"task_type": "crawl"}, bad]})

    assert_problem(answer, status)
    assert await kit.dump() == before


async def test_the_trace_of_a_submission_goes_with_the_task(http: httpx.AsyncClient, bench: Bench, kit: Kit) -> None:
    headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=1", "baggage": "user=7"}
    answer = await http.post(TASKS, json={"task_type": "resize"}, headers=headers)
    worker_id = await bench.register()

    task_id = answer.json()["task_id"]
    task = await bench.claimed(worker_id)

    assert (await bench.read(task_id))["trace_id"] == TRACE_ID
    assert (task["trace_id"], task["traceparent"]) == (TRACE_ID, TRACEPARENT)
    trace = (await kit.read(task_id)).definition.trace
    assert trace
    assert (trace.tracestate, trace.baggage) == ("vendor=1", "user=7")


@pytest.mark.parametrize(("flags", "is_sampled"), [("01", True), ("03", True), ("00", False), ("02", False)])
async def test_whether_its_trace_is_kept_anywhere_is_read_with_the_task(
    bench: Bench, http: httpx.AsyncClient, flags: str, is_sampled: bool
) -> None:
    """A trace that its submitter did not sample has an id, and nothing to be seen under it."""
    headers = {"traceparent": f"{TRACEPARENT[:-2]}{flags}"}
    answer = await http.post(TASKS, json={"task_type": "resize"}, headers=headers)

    task = await bench.read(answer.json()["task_id"])

    assert (task["trace_id"], task["trace_is_sampled"]) == (TRACE_ID, is_sampled)


@pytest.mark.parametrize(
    "traceparent", ["a-b-c-d", f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{TRACE_ID.upper()}-x-01", "x" * 4000], ids=len
)
async def test_a_traceparent_that_is_none_is_ignored(http: httpx.AsyncClient, bench: Bench, traceparent: str) -> None:
    """As W3C Trace Context says; and what anyone sends must not come back as a trace id."""
    answer = await http.post(TASKS, json={"task_type": "resize"}, headers={"traceparent": traceparent})

    assert answer.status_code == 201
    task_id = answer.json()["task_id"]
    assert (await bench.read(task_id))["trace_id"] == task_id.replace("-", "")


class TestAboveTheSoftDepth:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=Admission(soft_depth=2, high_only_depth=3, max_depth=4))

    @pytest.mark.parametrize("path", [TASKS, BATCH])
    async def test_a_submission_is_put_off_and_leaves_nothing_behind(
        self, http: httpx.AsyncClient, bench: Bench, kit: Kit, path: str
    ) -> None:
        for _ in range(3):
            await bench.submit(priority="high")
        before = await kit.dump()
        task = {"task_type": "resize", "idempotency_key": "k", "priority": "low"}

        answer = await http.post(path, json=task if path == TASKS else {"tasks": [task]})

        assert_problem(answer, 429, "queue-full")
        assert int(answer.headers["retry-after"]) >= 1
        assert await kit.dump() == before


class TestEachStageOfBackpressure:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        admission = Admission(soft_depth=2, high_only_depth=3, max_depth=4, listed_clients=("vip",))
        return QueueSettings(admission=admission)

    @pytest.mark.parametrize(
        ("depth", "taken", "refused", "told"),
        [
            (
                2,
                "medium",
                "low",
                "2 tasks wait; beyond 2 (TIDEQ_DEPTH_REFUSE_LOW) only tasks of the default priority or a more",
            ),
            (
                3,
                "high",
                "medium",
                "3 tasks wait; beyond 3 (TIDEQ_DEPTH_REFUSE_MEDIUM) only tasks of the most urgent prio",
            ),
            (
                4,
                None,
                "high",
                "4 tasks wait; beyond 4 (TIDEQ_DEPTH_REFUSE_ALL) only tasks of the clients in TIDEQ_DEPTH_EXEMPT_CL",
            ),
        ],
    )
    async def test_says_which_it_is_and_what_is_still_taken(
        self, http: httpx.AsyncClient, bench: Bench, depth: int, taken: str | None, refused: str, told: str
    ) -> None:
        for _ in range(depth):
            await bench.submit(client_id="vip")

        answer = await http.post(TASKS, json={"task_type": "resize", "priority": refused})

        assert assert_problem(answer, 429, "queue-full")["detail"].startswith(told)
        await bench.submit(**({"priority": taken} if taken else {"client_id": "vip"}))


class TestABusyClient:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=Admission(client_rate_per_second=0.01, client_burst=1))

    async def test_is_put_off_while_others_are_not(self, http: httpx.AsyncClient, bench: Bench) -> None:
        await bench.submit(client_id="busy")

        refused = await http.post(TASKS, json={"task_type": "resize", "client_id": "busy"})

        assert_problem(refused, 429, "too-many-submissions")
        assert int(refused.headers["retry-after"]) >= 1
        await bench.submit(client_id="calm")


@pytest.mark.parametrize(("size", "status"), [(262_144, 201), (262_145, 413)])
async def test_parameters_may_have_256_kib_and_no_more(
    http: httpx.AsyncClient, kit: Kit, size: int, status: int
) -> None:
    parameters = b'{"a":"%b"}' % (b"x" * (size - 8))
    before = await kit.dump()

    answer = await http.post(TASKS, content=b'{"task_type":"resize","parameters":%b}' % parameters)

    assert answer.status_code == status
    if status == 413:
        assert_problem(answer, 413, "payload-too-large")
        assert await kit.dump() == before


async def test_a_queued_task_is_cancelled_then_purged(http: httpx.AsyncClient, bench: Bench) -> None:
    task_id = await bench.submit()

    cancelled = await bench.call("DELETE", f"{TASKS}/{task_id}")
    again = await http.delete(f"{TASKS}/{task_id}")
    await bench.call("DELETE", f"{TASKS}/{task_id}?purge=true")

    assert (cancelled["was_executing"], cancelled["worker_notified"]) == (False, False)
    assert assert_problem(again, 409, "wrong-state")["state"] == "cancelled"
    assert_problem(await http.get(f"{TASKS}/{task_id}"), 404, "task-not-found")


async def test_a_live_task_is_not_purged(http: httpx.AsyncClient, bench: Bench, kit: Kit) -> None:
    task_id = await bench.submit()
    before = await kit.dump()

    answer = await http.delete(f"{TASKS}/{task_id}?purge=true")

    assert assert_problem(answer, 409, "wrong-state")["state"] == "queued"
    assert await kit.dump() == before


async def test_a_cancelled_task_is_retried_with_a_new_priority(http: httpx.AsyncClient, bench: Bench) -> None:
    task_id = await bench.submit()
    early = await http.post(f"{TASKS}/{task_id}/retry")
    await bench.call("DELETE", f"{TASKS}/{task_id}")

    answer = await bench.call("POST", f"{TASKS}/{task_id}/retry", {"new_priority": "high"})

    task = await bench.read(task_id)
    assert assert_problem(early, 409, "wrong-state")["state"] == "queued"
    assert (answer["status"], answer["version"]) == ("queued", task["version"])
    assert (task["status"], task["priority"], task["max_retries"]) == ("queued", "high", 5)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@pytest.mark.parametrize("task_id", ["0192f0c1-2b3c-7d4e-8f50-002233445566", "nonsense", "a b", "%00", "%0A", "é{}:*"])
async def test_an_unknown_task_is_not_found(http: httpx.AsyncClient, kit: Kit, method: str, task_id: str) -> None:
    before = await kit.dump()

    answer = await http.request(method, f"{TASKS}/{task_id}" + ("/retry" if method == "POST" else ""))

    assert_problem(answer, 404, "task-not-found")
    assert await kit.dump() == before


async def test_stats_count_what_waits(bench: Bench) -> None:
    await bench.submit("resize", priority="high")
    await bench.submit("crawl", delay_seconds=60)
    await bench.register(capacity=5)

    stats = await bench.call("GET", "/api/v1/queue/stats")

    assert stats["queue"]["total_depth"] == 2
    assert stats["queue"]["by_priority"] == {"high": 1, "medium": 1, "low": 0}
    assert stats["queue"]["oldest_age_by_priority"].keys() == {"high", "medium", "low"}
    assert {name: count for name, count in stats["queue"]["by_type"].items() if count} == {"resize": 1, "crawl": 1}
    assert stats["workers"].keys() >= {"active", "draining", "unhealthy", "dead", "total_capacity", "used_capacity"}
    assert (stats["workers"]["active"], stats["workers"]["total_capacity"]) == (1, 5)
    assert stats["throughput"]["completed_last_minute"] == 0
    assert stats["recovery_stats"]["assignment_timeouts_last_hour"] == 0


async def test_stats_of_an_empty_queue_name_every_priority(bench: Bench) -> None:
    queue = (await bench.call("GET", "/api/v1/queue/stats"))["queue"]

    assert queue["by_priority"] == {"high": 0, "medium": 0, "low": 0}
    assert queue["oldest_age_by_priority"] == {"high": 0, "medium": 0, "low": 0}
    assert queue["totals"] == {"completed": 0, "failed": 0, "cancelled": 0, "dead_letter": 0, "since": None}
    assert queue["by_type_and_state"] == {}


async def test_stats_count_what_ended_by_type_and_state(bench: Bench) -> None:
    worker_id = await bench.register(task_types=["resize"])
    await bench.submit("resize")
    await bench.tell(worker_id, "result", await bench.started(worker_id), status="completed", result=1)
    await bench.submit("resize")
    error = {"message": "no", "retriable": False}
    await bench.tell(worker_id, "result", await bench.started(worker_id), status="failed", error=error)
    task_id = await bench.submit("crop")
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}")
    await bench.submit("crop")

    queue = (await bench.call("GET", "/api/v1/queue/stats"))["queue"]

    states = ("queued", "assigned", "executing", "completed", "failed", "cancelled", "dead_letter")
    nothing = dict.fromkeys(states, 0)
    assert queue["by_type_and_state"] == {
        "crop": nothing | {"queued": 1, "cancelled": 1},
        "resize": nothing | {"completed": 1, "failed": 1},
    }
    totals = queue["totals"]
    assert datetime.fromisoformat(totals.pop("since")).year >= 2026
    assert totals == {"completed": 1, "failed": 1, "cancelled": 1, "dead_letter": 0}


async def test_stats_count_visibility_timeouts(bench: Bench, kit: Kit) -> None:
    """Assignments that lapsed and executions past their deadline, together."""
    worker_id = await bench.register(capacity=2)
    await bench.submit("resize", timeout_seconds=1)
    await bench.started(worker_id)
    await bench.submit("resize")
    await bench.call("POST", f"/internal/workers/{worker_id}/poll", {"available_capacity": 1})
    await kit.clock.advance(40_000)
    await kit.queue.sweep()

    recovery = (await bench.call("GET", "/api/v1/queue/stats"))["recovery_stats"]

    assert recovery["assignment_timeouts_last_hour"] == recovery["execution_timeouts_last_hour"] == 1
    assert recovery["visibility_timeouts_last_hour"] == 2


async def test_a_paused_type_is_not_handed_out_until_resumed(bench: Bench) -> None:
    worker_id = await bench.register()
    await bench.submit("resize")

    paused = await bench.call("POST", "/api/v1/queue/pause", {"task_type": "resize", "reason": "storm"})
    meanwhile = await bench.poll(worker_id)
    resumed = await bench.call("POST", "/api/v1/queue/resume", {"task_type": "resize"})

    assert (paused, resumed) == ({"paused": True}, {"paused": False})
    assert meanwhile["tasks"] == []
    assert (await bench.claimed(worker_id))["task_type"] == "resize"


async def test_a_limit_is_kept_and_acts(bench: Bench) -> None:
    worker_id = await bench.register()
    await bench.submit("resize")
    await bench.submit("resize")

    answer = await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "resize", "max_executing": 1})

    (limit,) = answer["limits"]
    assert (limit["task_type"], limit["max_executing"], limit["tasks_per_second"]) == ("resize", 1, 0)
    assert len((await bench.poll(worker_id, available_capacity=2))["tasks"]) == 1
    assert await bench.call("GET", "/api/v1/queue/limits") == answer


@pytest.mark.parametrize(
    "resume_at", ["9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.9999Z", "0001-01-01T00:00:00+14:00"]
)
async def test_limits_can_be_read_whatever_a_pause_was_given(http: httpx.AsyncClient, kit: Kit, resume_at: str) -> None:
    """A resume_at no calendar holds is refused, or shown; it must not make the limits unreadable."""
    paused = await http.post("/api/v1/queue/pause", json={"resume_at": resume_at})

    assert paused.status_code in (200, 422)
    assert (await http.get("/api/v1/queue/limits")).status_code == 200
