"""A task that failed once and then succeeded is one tree under its submitter's trace, from request to result."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.stores import StoreUnderTest
from tests.telemetry.jaeger import complaints
from tests.telemetry.processes import collector_of_others, observed, service, worker
from tests.telemetry.sink import Seen, Sink

TRACE_ID, SUBMITTER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE_ID}-{SUBMITTER}-01", "tracestate": "vendor=1", "baggage": "tenant=acme"}
TASK = {"task_type": "twice", "backoff": {"base_seconds": 0.3, "multiplier": 1, "cap_seconds": 0.3}}
LATER = {**TASK, "backoff": {"base_seconds": 3_600, "multiplier": 1, "cap_seconds": 3_600}}
INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5


@pytest.fixture(params=["sink", "rotel"])
def collector(request: pytest.FixtureRequest, sink: Sink, tmp_path: Path) -> Iterator[str]:
    """Where spans are sent: to the sink, or through a collector that others wrote."""
    if request.param == "sink":
        yield sink.url
    else:
        with collector_of_others(sink.url, tmp_path, "http") as url:
            yield url


async def test_a_retried_task_is_one_tree(
    store: StoreUnderTest, database_url: str, queue_name: str, sink: Sink, collector: str, tmp_path: Path
) -> None:
    settings = observed(store.url, queue_name, collector, DATABASE_URL=database_url)
    with service(settings, tmp_path) as url, worker(settings, tmp_path, url):
        async with httpx.AsyncClient(base_url=url, timeout=40) as http:
            task_id = (await http.post("/api/v1/tasks", json=TASK, headers=HEADERS)).json()["task_id"]
            ended = (await http.get(f"/api/v1/tasks/{task_id}/wait")).json()
            history = (await http.get(f"/api/v1/tasks/{task_id}?include_history=true")).json()["state_history"]
            others = [await ended_task(http, task_type) for task_type in ("on_loop", "in_child")]
        spans = whole(sink, TRACE_ID, "task.lifecycle", ("settle", "settle"))
        on_loop = whole(sink, others[0]["trace_id"], "task.lifecycle", ("settle",))

    assert (ended["status"], ended["trace_id"]) == ("completed", TRACE_ID)
    phases = [span.name for span in spans if span.name.startswith("task.")]
    assert tree(spans) == {
        SUBMITTER: ["POST /api/v1/tasks"],
        "POST /api/v1/tasks": ["send"],
        "send": sorted(["receive", "receive", *phases]),
        "task.executing": ["process", "process"],
        "process": ["handler work", "handler work", "settle", "settle"],
    }
    assert durations(spans) == expected_durations(history)
    check_messaging(spans, queue_name, task_id)
    check_errors(spans)
    check_handler(spans)
    assert tree(on_loop)["process"] == ["handler work", "settle"]
    assert {span.service for span in spans if span.name.startswith("task.")} == {"tideq"}
    assert others[1]["result"] == others[1]["trace_id"]


async def test_a_task_that_waits_runs_or_was_called_off_has_a_whole_tree_without_false_errors(
    store: StoreUnderTest, database_url: str, queue_name: str, sink: Sink, tmp_path: Path
) -> None:
    settings = observed(store.url, queue_name, sink.url, DATABASE_URL=database_url)
    with service(settings, tmp_path) as url, worker(settings, tmp_path, url):
        async with httpx.AsyncClient(base_url=url, timeout=40) as http:
            waiting, running, called_off = [
                (await http.post("/api/v1/tasks", json=task)).json()["task_id"]
                for task in (LATER, {"task_type": "until_called_off"}, {"task_type": "until_called_off"})
            ]
            for task_id in (running, called_off):
                await reached(http, task_id, "executing")
            await http.delete(f"/api/v1/tasks/{called_off}")
            traces = [(await http.get(f"/api/v1/tasks/{each}")).json()["trace_id"] for each in (waiting, running)]
            ended = (await http.get(f"/api/v1/tasks/{called_off}")).json()
            backing_off = whole(sink, traces[0], "task.executing", ("settle",))
            begun = whole(sink, traces[1], "receive", ())
            cancelled = whole(sink, ended["trace_id"], "task.lifecycle", ("settle", "cancel"))

    failed = sorted(short(span.name) for span in backing_off if span.is_error)
    assert failed == ["handler work", "process", "task.executing"]
    (process,) = [span for span in backing_off if short(span.name) == "process"]
    assert process.attributes["error.type"] == "RuntimeError"
    assert {short(span.name) for span in begun} >= {"POST /api/v1/tasks", "send", "receive"}
    assert [span.name for span in cancelled if span.is_error] == []
    (settle,) = [span for span in cancelled if short(span.name) == "settle"]
    assert settle.attributes["tideq.refusal"] == "wrong-state"


def whole(sink: Sink, trace_id: str, last: str, worked: Sequence[str]) -> list[Seen]:
    """The spans of a trace once these are among them; from then on Jaeger has nothing to complain of."""
    wanted = Counter([last, *worked])

    def is_whole(spans: list[Seen]) -> bool:
        own = [span for span in spans if span.trace_id == trace_id]
        return Counter(short(span.name) for span in own) >= wanted and not complaints(own, told=spans)

    return [span for span in sink.wait(is_whole) if span.trace_id == trace_id]


async def reached(http: httpx.AsyncClient, task_id: str, status: str) -> None:
    while (await http.get(f"/api/v1/tasks/{task_id}")).json()["status"] != status:
        await asyncio.sleep(0.02)


async def ended_task(http: httpx.AsyncClient, task_type: str) -> dict[str, Any]:
    """One whose trace begins here."""
    task_id = (await http.post("/api/v1/tasks", json={"task_type": task_type})).json()["task_id"]
    return (await http.get(f"/api/v1/tasks/{task_id}/wait")).json()


def tree(spans: Sequence[Seen]) -> dict[str, list[str]]:
    """Who hangs under whom, by name; a parent that is not among them shows as its id."""
    names = {span.span_id: short(span.name) for span in spans}
    assert len(names) == len(spans), "span ids are used once"
    found: dict[str, list[str]] = {}
    for span in spans:
        found.setdefault(names.get(span.parent_id, span.parent_id), []).append(short(span.name))
    return {parent: sorted(children) for parent, children in found.items()}


def short(name: str) -> str:
    operation = name.partition(" ")[0]
    return operation if operation in ("send", "receive", "process", "settle", "cancel") else name


def durations(spans: Sequence[Seen]) -> list[tuple[str, int, int]]:
    """Name, beginning and length, in milliseconds of the store's clock; waiting and backing off taken together."""
    told = sorted((span.began_ns // 1_000_000, span.name, span.milliseconds) for span in spans if "task." in span.name)
    merged = Counter[str]()
    out = list[tuple[str, int, int]]()
    for began_ms, name, length in told:
        if name == "task.backoff":
            assert 0 < length <= 0.3 * 1.2 * 1000 + 1
            merged["backoff"], merged["began"] = length, began_ms
        elif merged["backoff"] and name == "task.queued":
            assert began_ms == merged["began"] + merged["backoff"], "a wait begins when the backoff ends"
            out.append((name, merged.pop("began"), length + merged.pop("backoff")))
        else:
            out.append((name, began_ms, length))
    if merged["backoff"]:
        # Claimed in the millisecond in which it was over.
        out.append(("task.queued", merged["began"], merged["backoff"]))
    return sorted(out)


def expected_durations(history: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    instants = [round(datetime.fromisoformat(each["at"]).timestamp() * 1000) for each in history]
    phases = [
        (f"task.{was['state']}", began, ended - began)
        for was, began, ended in zip(history[:-1], instants[:-1], instants[1:], strict=True)
    ]
    told = [phase for phase in phases if phase[2] or phase[0] == "task.executing"]
    return sorted([*told, ("task.lifecycle", instants[0], instants[-1] - instants[0])])


def check_messaging(spans: Sequence[Seen], queue_name: str, task_id: str) -> None:
    kinds = {"send": PRODUCER, "receive": CLIENT, "process": CONSUMER, "settle": CLIENT}
    for span in spans:
        if kind := kinds.get(short(span.name)):
            assert span.name == f"{short(span.name)} {queue_name}"
            assert span.kind == kind
            assert span.attributes["messaging.system"] == "tideq"
            assert span.attributes["messaging.operation.name"] == short(span.name)
            assert span.attributes["messaging.destination.name"] == queue_name
            assert span.attributes["messaging.message.id"] == task_id
    (http,) = [span for span in spans if span.kind == SERVER]
    assert http.attributes["http.route"] == "/api/v1/tasks"
    assert http.attributes["http.response.status_code"] == 201


def check_errors(spans: Sequence[Seen]) -> None:
    """The first attempt's: its execution, and what the worker saw of it."""
    failed = sorted((short(span.name), span.attributes.get("tideq.task.attempt", 1)) for span in spans if span.is_error)
    assert failed == [("handler work", 1), ("process", 1), ("task.executing", 1)]
    (executing,) = [span for span in spans if span.is_error and span.name == "task.executing"]
    assert executing.attributes["error.type"] == "RuntimeError"
    assert executing.events == [("exception", {"exception.type": "RuntimeError", "exception.message": "not yet"})]


def check_handler(spans: Sequence[Seen]) -> None:
    """It was given its attempt's execution, with baggage, in time to hang its own spans there."""
    executions = {span.attributes["tideq.task.attempt"]: span for span in spans if span.name == "task.executing"}
    processes = {span.span_id: span for span in spans if short(span.name) == "process"}
    for work in (span for span in spans if span.name == "handler work"):
        attempt = processes[work.parent_id].attributes["tideq.task.attempt"]
        assert work.attributes["given"] == f"00-{TRACE_ID}-{executions[attempt].span_id}-01"
        assert work.attributes["tenant"] == "acme"
