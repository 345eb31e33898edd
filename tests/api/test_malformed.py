"""Requests no client of ours would send: each is refused for what it is, in a problem document, and changes nothing."""

import json
import socket
from typing import Any, NamedTuple

import httpx
import pytest

from tests.api.bench import Bench, assert_problem
from tests.api.running import Running
from tests.kit import Kit
from tideq.queue_core.attempts import LeaseRef

TASKS = "/api/v1/tasks"
BATCH = "/api/v1/tasks/batch"
LIMITS = "/api/v1/queue/limits"
PAUSE = "/api/v1/queue/pause"
REGISTER = "/internal/workers/register"
WORKER = "/internal/workers/w1/"
HUGE = 10**30


class Case(NamedTuple):
    path: str
    body: bytes
    status: int
    method: str = "POST"


def task(**fields: Any) -> bytes:
    return json.dumps({"task_type": "resize", **fields}).encode()


def with_parameters(parameters: bytes) -> bytes:
    return b'{"task_type":"resize","parameters":%b}' % parameters


def held(**fields: Any) -> bytes:
    """TASK and LEASE stand for the task the worker executes."""
    return json.dumps({"task_id": "TASK", "lease": "LEASE", **fields}).encode()


def result(document: bytes) -> bytes:
    return b'{"task_id":"TASK","lease":"LEASE","status":"completed","result":%b}' % document


def failed(**error: Any) -> bytes:
    return held(status="failed", error=error)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


BYTES = {
    "nothing": (b"", 400),
    "no JSON": (b"hello", 400),
    "a form": (b"task_type=resize&parameters=%7B%7D", 400),
    "cut short": (b'{"task_type":"resize"', 400),
    "two documents": (b'{"task_type":"resize"}{}', 400),
    "a trailing comma": (b'{"task_type":"resize",}', 400),
    "single quotes": (b"{'task_type':'resize'}", 400),
    "a byte order mark": (b'\xef\xbb\xbf{"task_type":"resize"}', 400),
    "UTF-16": ('{"task_type":"resize"}'.encode("utf-16"), 400),
    "invalid UTF-8 in a name": (b'{"task_type":"\xff\xfe"}', 400),
    "a control character in a text": (b'{"task_type":"re\nsize"}', 400),
    "gzip": (b"\x1f\x8b\x08\x00" + b"\x00" * 20, 400),
    "an array": (b"[]", 422),
    "null": (b"null", 422),
    "a text": (b'"resize"', 422),
    "200 000 open brackets": (b"[" * 200_000, 400),
    "200 000 open braces": (b'{"a":' * 200_000, 413),
    "60 000 open braces": (b'{"a":' * 60_000, 400),
    "200 000 nested brackets": (with_parameters(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), 413),
    "150 000 nested brackets": (with_parameters(b'{"a":' + b"[" * 150_000 + b"]" * 150_000 + b"}"), 400),
    "50 000 nested braces": (with_parameters(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), 400),
    "closing brackets first": (b"]" * 100 + b"[" * 200_000, 400),
    "brackets in an unfinished text": (b'{"task_type":"' + b"[" * 200_000, 400),
    "brackets after an escaped quote": (b'{"a":"\\"",' + b'"b":' + b"[" * 200_000, 400),
}

PARAMETERS = {
    "NaN": (b'{"a":NaN}', 400),
    "Infinity": (b'{"a":Infinity}', 400),
    "minus Infinity": (b'{"a":-Infinity}', 400),
    "a number beyond all": (b'{"a":1e999}', 422),
    "five thousand digits": (b'{"a":%b}' % (b"9" * 5000), 422),
    "a leading zero": (b'{"a":01}', 400),
    "a NUL": (b'{"a":"\\u0000"}', 422),
    "a NUL within a text": (b'{"a":"x\\u0000y"}', 422),
    "a NUL in a key": (b'{"\\u0000":1}', 422),
    "a NUL after an escaped backslash": (b'{"a":"\\\\\\u0000"}', 422),
    "a NUL after two escaped backslashes": (b'{"a":"\\\\\\\\\\u0000"}', 422),
    "a NUL after another": (b'{"a":"\\\\u0000","b":"\\u0000"}', 422),
    "a raw NUL": (b'{"a":"\x00"}', 400),
    "a lone high surrogate": (b'{"a":"\\ud800"}', 400),
    "a lone high surrogate before a letter": (b'{"a":"\\ud800x"}', 400),
    "a lone low surrogate": (b'{"a":"\\udc00"}', 400),
    "surrogates the wrong way round": (b'{"a":"\\udc00\\ud800"}', 400),
    "a lone surrogate in a key": (b'{"\\ud800":1}', 400),
    "a surrogate as UTF-8": (b'{"a":"\xed\xa0\x80"}', 400),
    "invalid UTF-8": (b'{"a":"\xff"}', 400),
    "an overlong slash": (b'{"a":"\xc0\xaf"}', 400),
    "an unknown escape": (b'{"a":"\\x41"}', 400),
    "an array": (b"[1]", 422),
    "null": (b"null", 422),
    "a text": (b'"a"', 422),
    "a number": (b"1", 422),
    "33 levels": (b'{"a":' + b"[" * 33 + b"]" * 33 + b"}", 400),
}

FIELDS: dict[str, Any] = {
    "an unknown field": {"prioritiy": "high"},
    "a priority there is not": {"priority": "urgent"},
    "a priority in capitals": {"priority": "High"},
    "a priority as a number": {"priority": 1},
    "an empty type": {"task_type": ""},
    "a type with a space": {"task_type": "re size"},
    "a type with a newline at its end": {"task_type": "resize\n"},
    "a type that starts with a dot": {"task_type": ".resize"},
    "a type of 65 letters": {"task_type": "x" * 65},
    "a type with a bar": {"task_type": "a|b"},
    "a type that is a number": {"task_type": 7},
    "a type of null": {"task_type": None},
    "a negative timeout": {"timeout_seconds": -1},
    "no time at all": {"timeout_seconds": 0},
    "a timeout beyond the longest": {"timeout_seconds": 1e7},
    "a huge timeout": {"timeout_seconds": HUGE},
    "a timeout as a text": {"timeout_seconds": "10"},
    "a timeout as a truth": {"timeout_seconds": True},
    "negative retries": {"max_retries": -1},
    "too many retries": {"max_retries": 1001},
    "huge retries": {"max_retries": HUGE},
    "half a retry": {"max_retries": 1.5},
    "run_at and a delay": {"run_at": "2099-01-01T00:00:00Z", "delay_seconds": 1},
    "run_at and no delay to speak of": {"run_at": "2099-01-01T00:00:00Z", "delay_seconds": 0},
    "run_at in the year 9999": {"run_at": "9999-12-31T23:59:59Z"},
    "run_at beyond the year 9999": {"run_at": "9999-12-31T23:59:59-14:00"},
    "run_at in the year 1": {"run_at": "0001-01-01T00:00:00Z"},
    "run_at before the year 1": {"run_at": "0001-01-01T00:00:00+14:00"},
    "run_at after 2109": {"run_at": "2109-06-01T00:00:00Z"},
    "run_at as a number": {"run_at": 1_700_000_000},
    "run_at on the 30th of February": {"run_at": "2099-02-30T00:00:00Z"},
    "run_at tomorrow": {"run_at": "tomorrow"},
    "a negative delay": {"delay_seconds": -0.001},
    "a huge delay": {"delay_seconds": HUGE},
    "a delay of 120 years": {"delay_seconds": 3.9e9},
    "capabilities as a text": {"required_capabilities": "gpu"},
    "a capability with a comma": {"required_capabilities": ["a,b"]},
    "too many capabilities": {"required_capabilities": [f"c{n}" for n in range(17)]},
    "tags as a list": {"tags": ["a"]},
    "a tag that is a number": {"tags": {"a": 1}},
    "a tag with a bad name": {"tags": {"a b": "x"}},
    "a long tag": {"tags": {"a": "x" * 257}},
    "too many tags": {"tags": {f"t{n}": "x" for n in range(33)}},
    "a tag with a NUL": {"tags": {"a": "x\0y"}},
    "a long idempotency key": {"idempotency_key": "x" * 256},
    "an idempotency key with a NUL": {"idempotency_key": "x\0y"},
    "an idempotency key as a number": {"idempotency_key": 7},
    "a backoff without growth": {"backoff": {"multiplier": 0}},
    "an unknown field of the backoff": {"backoff": {"base": 1}},
    "a head start beyond the score": {"head_start_seconds": -3.9e9},
    "a bad client": {"client_id": "a b"},
    "an id that is none": {"task_id": "nonsense"},
    "an id in capitals": {"task_id": "0192F0C1-2B3C-7D4E-8F50-002233445566"},
    "an id of another version": {"task_id": "0192f0c1-2b3c-4d4e-8f50-002233445566"},
    "an id in braces": {"task_id": "{0192f0c1-2b3c-7d4e-8f50-002233445566}"},
}

CASES: dict[str, Case] = {
    **{f"submit: {name}": Case(TASKS, content, status) for name, (content, status) in BYTES.items()},
    "batch: 200 000 nested brackets": Case(BATCH, b'{"tasks":' + b"[" * 200_000 + b"]" * 200_000 + b"}", 400),
    "batch: 200 000 open braces": Case(BATCH, b'{"a":' * 200_000, 400),
    **{
        f"parameters: {name}": Case(TASKS, with_parameters(kept), status) for name, (kept, status) in PARAMETERS.items()
    },
    **{f"submit: {name}": Case(TASKS, task(**fields), 422) for name, fields in FIELDS.items()},
    "batch: none": Case(BATCH, b'{"tasks":[]}', 422),
    "batch: 1001": Case(BATCH, body(tasks=[{"task_type": "resize"}] * 1001), 422),
    "batch: no list": Case(BATCH, b'{"tasks":{}}', 422),
    "batch: nothing": Case(BATCH, b"{}", 422),
    "batch: a bare list": Case(BATCH, b'[{"task_type":"resize"}]', 422),
    "batch: an unknown field": Case(BATCH, body(tasks=[{"task_type": "resize"}], atomic=True), 422),
    "batch: two clients": Case(BATCH, body(tasks=[{"task_type": "a", "client_id": c} for c in "xy"]), 422),
    "batch: the last is bad": Case(BATCH, body(tasks=[{"task_type": "a"}, {"task_type": "a", "max_retries": -1}]), 422),
    "retry: unknown field": Case(TASKS + "/TASK/retry", body(reset=True), 422),
    "retry: no truth": Case(TASKS + "/TASK/retry", body(reset_retry_count="yes"), 422),
    "cancel: purge is no truth": Case(TASKS + "/TASK?purge=perhaps", b"", 400, "DELETE"),
    "register: capacity none": Case(REGISTER, body(capacity=0), 422),
    "register: capacity below none": Case(REGISTER, body(capacity=-1), 422),
    "register: capacity huge": Case(REGISTER, body(capacity=HUGE), 422),
    "register: no types": Case(REGISTER, body(task_types=[]), 422),
    "register: a bad type": Case(REGISTER, body(task_types=["a|b"]), 422),
    "register: a bad capability": Case(REGISTER, body(capabilities=["a,b"]), 422),
    "register: a bad name": Case(REGISTER, body(name="a b"), 422),
    "register: no name": Case(REGISTER, body(name=""), 422),
    "register: a long name": Case(REGISTER, body(name="x" * 65), 422),
    "register: a name bad at its end": Case(REGISTER, body(name="x" * 41 + " |{}"), 422),
    "register: a port beyond": Case(REGISTER, body(health_port=65_536), 422),
    "register: much too long a host": Case(REGISTER, body(host="x" * 300_000), 422),
    "register: a megabyte of host": Case(REGISTER, body(host="x" * 1_000_000), 413),
    "register: a host with a NUL": Case(REGISTER, body(host="a\0b"), 422),
    "register: unknown field": Case(REGISTER, body(worker_id="w2"), 422),
    "register: no JSON": Case(REGISTER, b"capacity=1", 400),
    "poll: nothing wanted": Case(WORKER + "poll", body(available_capacity=0), 422),
    "poll: less than nothing": Case(WORKER + "poll", body(available_capacity=-1), 422),
    "poll: 1001": Case(WORKER + "poll", body(available_capacity=1001), 422),
    "poll: huge": Case(WORKER + "poll", body(available_capacity=HUGE), 422),
    "poll: a negative wait": Case(WORKER + "poll", body(wait_seconds=-1), 422),
    "poll: a long wait": Case(WORKER + "poll", body(wait_seconds=30.1), 422),
    "poll: wait NaN": Case(WORKER + "poll", b'{"wait_seconds":NaN}', 400),
    "poll: a bad poll id": Case(WORKER + "poll", body(poll_id="a b"), 422),
    "poll: an empty poll id": Case(WORKER + "poll", body(poll_id=""), 422),
    "poll: a bad capability": Case(WORKER + "poll", body(capabilities=["a|b,c"]), 422),
    "poll: unknown field": Case(WORKER + "poll", body(capacity=1), 422),
    "poll: no JSON": Case(WORKER + "poll", b"x", 400),
    "start: no lease": Case(WORKER + "start", body(task_id="TASK"), 422),
    "start: a lease that is a number": Case(WORKER + "start", held(lease=1), 422),
    "start: nothing": Case(WORKER + "start", b"", 400),
    "extend: no time": Case(WORKER + "extend", held(seconds=0), 422),
    "extend: negative": Case(WORKER + "extend", held(seconds=-5), 422),
    "extend: huge": Case(WORKER + "extend", held(seconds=HUGE), 422),
    "extend: left out": Case(WORKER + "extend", held(), 422),
    "progress: 101": Case(WORKER + "progress", held(progress_percent=101), 422),
    "progress: -1": Case(WORKER + "progress", held(progress_percent=-1), 422),
    "progress: a long message": Case(WORKER + "progress", held(progress_percent=1, status_message="x" * 1001), 422),
    "progress: a NUL": Case(WORKER + "progress", held(progress_percent=1, status_message="a\0b"), 422),
    "progress: a huge number": Case(WORKER + "progress", held(progress_percent=1, sequence=HUGE), 422),
    "result: a status there is not": Case(WORKER + "result", held(status="done"), 422),
    "result: no status": Case(WORKER + "result", held(), 422),
    "result: discarded without why": Case(WORKER + "result", held(status="discarded"), 422),
    "result: failed without why": Case(WORKER + "result", held(status="failed"), 422),
    "result: unknown field": Case(WORKER + "result", held(status="completed", results=1), 422),
    "result: a NUL": Case(WORKER + "result", result(b'{"a":"\\\\\\u0000"}'), 422),
    "result: a lone surrogate": Case(WORKER + "result", result(b'"\\ud800"'), 400),
    "result: NaN": Case(WORKER + "result", result(b"NaN"), 400),
    "result: invalid UTF-8": Case(WORKER + "result", result(b'"\xff"'), 400),
    "result: too large": Case(WORKER + "result", result(b'"%b"' % (b"x" * 262_144)), 413),
    "result: too deep": Case(WORKER + "result", result(b"[" * 150_000 + b"]" * 150_000), 400),
    "error: a NUL in its message": Case(WORKER + "result", failed(message="a\0b"), 422),
    "error: a NUL in its code": Case(WORKER + "result", failed(message="a", code="\0"), 422),
    "error: a NUL in its details": Case(WORKER + "result", failed(message="a", details={"x": "\0"}), 422),
    "error: too large": Case(WORKER + "result", failed(message="x" * 70_000), 413),
    "error: no message": Case(WORKER + "result", failed(code="X"), 422),
    "error: retriable perhaps": Case(WORKER + "result", failed(message="a", retriable="perhaps"), 422),
    "heartbeat: a negative load": Case(WORKER + "heartbeat", body(current_load=-1), 422),
    "heartbeat: a status there is not": Case(WORKER + "heartbeat", body(status="sleepy"), 422),
    "heartbeat: health no object": Case(WORKER + "heartbeat", body(health=[1]), 422),
    "heartbeat: too much health": Case(WORKER + "heartbeat", body(health={"x": "y" * 300_000}), 422),
    "heartbeat: a megabyte of health": Case(WORKER + "heartbeat", body(health={"x": "y" * 1_000_000}), 413),
    "sync: a text": Case(WORKER + "sync", b'"x"', 422),
    "sync: 1001 starts": Case(WORKER + "sync", body(starts=[{"task_id": "a", "lease": "b"}] * 1001), 422),
    "sync: a negative capacity": Case(WORKER + "sync", body(available_capacity=-1), 422),
    "sync: a long wait": Case(WORKER + "sync", body(wait_seconds=31), 422),
    "sync: unknown field": Case(WORKER + "sync", body(ends=[]), 422),
    "limits: a negative rate": Case(LIMITS, body(tasks_per_second=-1), 422, "PUT"),
    "limits: a huge rate": Case(LIMITS, body(tasks_per_second=HUGE), 422, "PUT"),
    "limits: fewer than none": Case(LIMITS, body(max_executing=-1), 422, "PUT"),
    "limits: a huge maximum": Case(LIMITS, body(max_executing=HUGE), 422, "PUT"),
    "limits: a bad type": Case(LIMITS, body(task_type="*"), 422, "PUT"),
    "limits: an empty type": Case(LIMITS, body(task_type=""), 422, "PUT"),
    "limits: nothing": Case(LIMITS, b"", 400, "PUT"),
    "limits: unknown field": Case(LIMITS, body(rate=1), 422, "PUT"),
    "pause: a bad type": Case(PAUSE, body(task_type="a b"), 422),
    "pause: a long reason": Case(PAUSE, body(reason="x" * 201), 422),
    "pause: resume at some time": Case(PAUSE, body(resume_at="soon"), 422),
    "resume: a bad type": Case("/api/v1/queue/resume", body(task_type="a:b"), 422),
}


@pytest.fixture
async def executing(kit: Kit) -> LeaseRef:
    """The task that w1 executes, beside one that waits."""
    await kit.worker("w1")
    await kit.submit()
    started = await kit.started("w1")
    await kit.submit()
    return LeaseRef(started.task_id, started.lease)


async def send(http: httpx.AsyncClient, case: Case, executing: LeaseRef) -> httpx.Response:
    content = case.body.replace(b"TASK", executing.task_id.encode()).replace(b"LEASE", executing.lease.encode())
    return await http.request(case.method, case.path.replace("TASK", executing.task_id), content=content)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_malformed_request_is_refused_and_changes_nothing(
    http: httpx.AsyncClient, kit: Kit, executing: LeaseRef, case: Case
) -> None:
    before = await kit.dump()

    answer = await send(http, case, executing)

    assert_problem(answer, case.status)
    assert await kit.dump() == before


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ([result(b'"\\u0000"')], 422),
        ([held(status="failed")], 422),
        ([result(b'"%b"' % (b"x" * 262_144))], 413),
        ([result(b"1"), failed(message="x" * 70_000)], 413),
    ],
    ids=["a NUL", "no error", "too large", "the error too large"],
)
async def test_a_refused_sync_has_done_none_of_its_parts(
    http: httpx.AsyncClient, kit: Kit, executing: LeaseRef, results: list[bytes], status: int
) -> None:
    """Otherwise a worker that is told no cannot know what became of the rest."""
    assigned = await kit.claimed("w1")
    starts = json.dumps([{"task_id": assigned.task_id, "lease": assigned.lease}]).encode()
    before = await kit.dump()

    sync = b'{"starts":%b,"results":[%b]}' % (starts, b",".join(results))
    answer = await send(http, Case(WORKER + "sync", sync, status), executing)

    assert_problem(answer, status)
    assert await kit.dump() == before


@pytest.mark.parametrize(
    ("path", "content", "pointer"),
    [
        (TASKS, task(priority=1), "/priority"),
        (TASKS, task(tags={"a": 1}), "/tags"),
        (TASKS, task(backoff={"multiplier": 0}), "/backoff/multiplier"),
        (TASKS, task(required_capabilities=["ok", 1]), "/required_capabilities/1"),
        (TASKS, task(timeout_seconds=0), "/timeout_seconds"),
        (TASKS, task(run_at="9999-12-31T23:59:59Z"), "/run_at"),
        (TASKS, with_parameters(b"[]"), "/parameters"),
        (BATCH, body(tasks=[{"task_type": "a"}, {"task_type": "a", "max_retries": -1}]), "/tasks/1/max_retries"),
        (BATCH, body(tasks=[{"task_type": "a"}, {"task_type": "a", "parameters": []}]), "/tasks/1/parameters"),
        (BATCH, body(tasks=[{"task_type": "a"}, {"task_type": "a b"}]), "/tasks/1/task_type"),
        (TASKS, b'{"task_type":"a","task_type":"b"}', "/task_type"),
        (TASKS, b'{"task_type":"a","parameters":{},"parameters":{}}', "/parameters"),
        (TASKS, b'{"task_type":"a", "priority" : null, "\\u0070riority":null}', "/priority"),
        (TASKS, b'{"task_type":"a","run_at":null,"idempotency_key":"a:b","idempotency_key":"c"}', "/idempotency_key"),
        (BATCH, b'{"tasks":[{"task_type":"a"}],"tasks":[{"task_type":"b"}]}', "/tasks"),
        (
            BATCH,
            b'{"tasks":[{"task_type":"a"},{"task_type":"a","parameters":{},"parameters":{}}]}',
            "/tasks/1/parameters",
        ),
        (
            BATCH,
            b'{"tasks":[{"task_type":"a","parameters":{"a":1}},{"task_type":"a","task_type":"b"}]}',
            "/tasks/1/task_type",
        ),
        (WORKER + "poll", b'{"wait_seconds":0,"wait_seconds":0}', "/wait_seconds"),
    ],
)
async def test_a_problem_points_at_the_field_as_the_caller_wrote_it(
    http: httpx.AsyncClient, executing: LeaseRef, path: str, content: bytes, pointer: str
) -> None:
    answer = await send(http, Case(path, content, 422), executing)

    assert [error["pointer"] for error in assert_problem(answer, 422)["errors"]] == [pointer]


@pytest.mark.parametrize(
    "content",
    [
        b'{"task_type":"a","parameters":{"a":1,"a":{"b":":"}},"idempotency_key":"a:\\u003a","tags":{"a":"b:c"}}',
        b'{ "task_type" : "a" , "run_at" : "2026-01-01T00:00:00Z" , "priority" : null }',
    ],
)
async def test_colons_and_names_inside_values_are_no_repeated_fields(http: httpx.AsyncClient, content: bytes) -> None:
    alone = await http.post(TASKS, content=content)
    batch = await http.post(BATCH, content=b'{"include_positions":true,"tasks":[{"task_type":"x"},%b]}' % content)

    assert (alone.status_code, batch.status_code) == (201, 201), (alone.text, batch.text)


async def test_a_body_beyond_the_limit_is_refused_by_its_length(http: httpx.AsyncClient, kit: Kit) -> None:
    before = await kit.dump()

    answer = await http.post(TASKS, content=b"x" * (16 * 1024 * 1024 + 1))

    assert_problem(answer, 413)
    assert await kit.dump() == before


async def test_an_endless_body_costs_no_memory(server: Running, remote: Bench) -> None:
    await remote.submit()
    before = server.peak_kib()

    answer = _pour(server.port, 200 * 1024 * 1024)

    assert answer.startswith(b"HTTP/1.1 413") or not answer
    assert server.peak_kib() - before < 30 * 1024
    await remote.submit()


def _pour(port: int, size: int) -> bytes:
    """Sends a chunked body until all is sent, or the server has enough; returns what it answered."""
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"POST /api/v1/tasks HTTP/1.1\r\nHost: tideq\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(size // 65_536):
                connection.sendall(chunk)
            connection.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        try:
            return connection.recv(65_536)
        except OSError:
            return b""


@pytest.mark.parametrize(
    ("method", "path", "hint"),
    [
        ("GET", "/api/v1/tasks?statsu=failed", "did you mean 'status'"),
        ("DELETE", "/api/v1/tasks?older_than=1d&staus=failed", "did you mean 'status'"),
        ("GET", "/api/v1/queue/stats?verbose=1", "not a parameter"),
        ("POST", "/api/v1/tasks?priority=high", "not a parameter"),
    ],
)
async def test_an_unknown_query_parameter_is_refused_and_a_near_one_is_named(
    http: httpx.AsyncClient, method: str, path: str, hint: str
) -> None:
    problem = assert_problem(await http.request(method, path), 400, "bad-request")

    assert hint in problem["detail"]
