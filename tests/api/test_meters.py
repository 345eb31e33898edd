"""What a process counts about itself, and what counting costs."""

import math
import time
from typing import Any

import pytest
from litestar import Litestar, Response, get

from tideq.api.metrics.request_metrics import ProcessMetrics, RequestTimer
from tideq.queue_core.samples import SampleHistogram


def test_durations_fall_into_the_bucket_that_holds_them() -> None:
    durations = SampleHistogram()
    for seconds in (0.0005, 0.001, 0.0011, 29.0, 31.0):
        durations.note(seconds)

    assert (durations.counts[0], durations.counts[1], durations.counts[-2], durations.counts[-1]) == (2, 1, 1, 1)
    assert durations.total == pytest.approx(60.0026)


async def test_counting_costs_a_small_part_of_an_empty_request() -> None:
    """A tenth of one without any server around it, which is less than half of a real one: so below a twentieth."""
    metrics = ProcessMetrics()

    async def metered(scope: Any, receive: Any, send: Any) -> None:
        timer = RequestTimer(metrics, scope)
        await _nothing(scope, receive, send)
        timer.end(200)

    empty = _empty_app()

    best = {"bare": math.inf, "metered": math.inf, "empty": math.inf}
    for _ in range(15):
        for name, app in (("bare", _nothing), ("metered", metered), ("empty", empty)):
            best[name] = min(best[name], await _cpu_seconds(app, 300))

    assert best["metered"] - best["bare"] < best["empty"] / 10, best


async def _nothing(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body"})


def _empty_app() -> Litestar:
    @get("/")
    async def empty() -> Response[bytes]:
        return Response(b"{}", media_type="application/json")

    return Litestar([empty], openapi_config=None, logging_config=None)


async def _cpu_seconds(app: Any, count: int) -> float:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "path_template": "/",
        "raw_path": b"/",
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"tideq")],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_message: Any) -> None:
        pass

    began = time.process_time()
    for _ in range(count):
        await app(dict(scope), receive, send)
    return time.process_time() - began
