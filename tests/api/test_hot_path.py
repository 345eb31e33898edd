"""A frequent call is answered the same, byte for byte, whether or not it goes through the framework."""

from typing import Any

import httpx
import msgspec
import pytest

from tests.api.test_malformed import CASES, Case, executing, send
from tests.kit import Kit
from tideq.api.app import create_app, litestar_app, routes
from tideq.api.hot_path import HotPath
from tideq.api.operations import operation_of_handler
from tideq.api.service import Service, offline_service
from tideq.api.settings import ServiceSettings
from tideq.queue_core.attempts import LeaseRef

__all__ = ("executing",)

FREQUENT = {path for path, handler in routes(litestar_app(offline_service())) if operation_of_handler(handler).is_hot}
EVERY_TASK = {
    "/api/v1/tasks",
    "/api/v1/tasks/batch",
    *(f"/internal/workers/{{worker_id}}/{verb}" for verb in ("poll", "start", "extend", "progress", "result")),
    "/internal/workers/{worker_id}/heartbeat",
    "/internal/workers/{worker_id}/sync",
}
REFUSED = {
    "a NUL": "parameters: a NUL",
    "no JSON": "submit: no JSON",
    "an unknown field": "submit: an unknown field",
    "a conflict": "submit: a priority there is not",
    "a batch": "batch: the last is bad",
    "a poll": "poll: nothing wanted",
    "a start": "start: no lease",
    "a result": "result: too large",
    "a sync": "sync: 1001 starts",
    "a heartbeat": "heartbeat: too much health",
}
TOO_LARGE = CASES["submit: 200 000 open braces"]
"""Known by its length, and left to Litestar to refuse."""


class Ways:
    """The same application twice: with the hot path, and without."""

    def __init__(self, service: Service) -> None:
        self.passed: list[str] = []
        framework = litestar_app(service)

        async def passing(scope: Any, receive: Any, send: Any) -> None:
            """What the hot path leaves to the framework."""
            self.passed.append(scope["path"])
            await framework(scope, receive, send)

        async def wrapped(scope: Any, receive: Any, send: Any) -> None:
            """As by a middleware of somebody else's around everything."""
            await hot(scope, receive, send)

        hot = HotPath(passing, service, routes(framework))
        self.short, self.long = _client(wrapped), _client(framework)

    async def close(self) -> None:
        await self.short.aclose()
        await self.long.aclose()


def _client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq")


@pytest.fixture
async def ways(service: Service) -> Any:
    ways = Ways(service)
    yield ways
    await ways.close()


def seen(answer: httpx.Response) -> tuple[int, Any, bytes]:
    # Litestar tells allowed methods in no order.
    headers = [(name, sorted(value.split(b", ")) if name == b"allow" else value) for name, value in answer.headers.raw]
    return answer.status_code, headers, answer.content


def test_the_hot_path_can_be_switched_off() -> None:
    on, off = (create_app(offline_service(ServiceSettings(hot_path=switch))) for switch in ("on", "off"))

    assert (isinstance(on, HotPath), isinstance(off, HotPath)) == (True, False)


def test_the_calls_of_every_task_are_frequent() -> None:
    assert FREQUENT == EVERY_TASK


@pytest.mark.parametrize("case", [CASES[name] for name in REFUSED.values()], ids=REFUSED)
async def test_a_refusal_is_the_same_either_way(ways: Ways, executing: LeaseRef, case: Case) -> None:
    short, long = [await send(http, case, executing) for http in (ways.short, ways.long)]

    assert seen(short) == seen(long)
    assert not ways.passed


async def test_a_body_that_is_too_large_is_refused_by_litestar(ways: Ways, executing: LeaseRef) -> None:
    short, long = [await send(http, TOO_LARGE, executing) for http in (ways.short, ways.long)]

    assert (short.status_code, seen(short)) == (413, seen(long))
    assert ways.passed == [TOO_LARGE.path]


async def test_an_answer_is_the_same_either_way(ways: Ways, kit: Kit) -> None:
    await kit.worker("w1")
    body = msgspec.json.encode({"task_type": "resize", "idempotency_key": "k"})
    # Known and cancelled, it has neither a score nor a place that could change.
    await kit.queue.cancel((await ways.long.post("/api/v1/tasks", content=body)).json()["task_id"])
    for path, content in (
        ("/api/v1/tasks", body),
        ("/internal/workers/w1/poll", b"{}"),
        ("/internal/workers/w1/sync", b"{}"),
        ("/internal/workers/nobody/heartbeat", b"{}"),
        ("/internal/workers/w%20%C3%A9/poll", b"{}"),
    ):
        assert seen(await ways.short.post(path, content=content)) == seen(await ways.long.post(path, content=content))
    assert not ways.passed


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/api/v1/tasks/", {}),
        ("POST", "/api/v1/tasks?prioritiy=high", {}),
        ("POST", "/api/v1/tasks", {"host": "a b"}),
        ("GET", "/api/v1/tasks/batch", {}),
        ("OPTIONS", "/api/v1/tasks", {}),
        ("POST", "/internal/workers//poll", {}),
        ("POST", "/internal/workers/a/b/poll", {}),
        ("POST", "/internal/workers/w1/dance", {}),
        ("POST", "/internal/workers/register", {}),
        ("POST", "/api/v1/queue/pause", {}),
    ],
)
async def test_anything_else_goes_through_litestar(
    ways: Ways, kit: Kit, method: str, path: str, headers: dict[str, str]
) -> None:
    short, long = [await http.request(method, path, content=b"[", headers=headers) for http in (ways.short, ways.long)]

    assert len(ways.passed) == 1
    assert seen(short) == seen(long)


async def test_requests_are_counted_the_same_either_way(ways: Ways, service: Service, kit: Kit) -> None:
    for http in (ways.short, ways.long):
        await http.post("/api/v1/tasks", json={"task_type": "resize"})
        await http.post("/api/v1/tasks", json={})

    assert {key: noted.count for key, noted in service.metrics.requests.items()} == {
        ("/api/v1/tasks", "POST", 2): 2,
        ("/api/v1/tasks", "POST", 4): 2,
    }
    assert service.metrics.refusals["invalid-request"] == 2


async def test_a_fault_of_ours_is_told_in_one_word(
    ways: Ways, service: Service, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_down(*_: object) -> None:
        raise ZeroDivisionError("what is nobody's business")

    monkeypatch.setattr(service.engine.queue, "submit", break_down)
    short, long = [await http.post("/api/v1/tasks", json={"task_type": "resize"}) for http in (ways.short, ways.long)]

    assert (short.status_code, seen(short)) == (500, seen(long))


class TestWithKeys:
    @pytest.fixture
    def auth(self) -> str:
        return "keys"

    async def test_keys_roles_and_workers_are_asked_for_the_same_either_way(
        self, ways: Ways, service: Service, kit: Kit
    ) -> None:
        producer, worker = [await service.access_keys.create(role, role, 0) for role in ("producer", "worker")]
        for key in ("", "tq_nonsense", producer, worker):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            for path in ("/api/v1/tasks", "/internal/workers/w1/poll"):
                short, long = [
                    await http.post(path, content=b"{}", headers=headers) for http in (ways.short, ways.long)
                ]
                assert seen(short) == seen(long)
                assert short.status_code in (401, 403, 422)
        assert not ways.passed
