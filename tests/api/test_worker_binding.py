"""A worker id belongs to the key that registered it: every call in its name, derived from the route table."""

import string
from typing import Any

import httpx
import pytest
from litestar.routes import HTTPRoute

from tests.api.bench import Bench, Json, assert_problem
from tests.kit import Kit
from tideq.api.app import litestar_app
from tideq.api.edge import auth as auth_module
from tideq.api.edge.auth import MARK_LENGTH, is_made_for, make_worker_id
from tideq.api.service import Service, offline_service
from tideq.api.settings import Auth
from tideq.queue_core.validation import NAME

BODIES: dict[str, Json] = {
    "poll": {"available_capacity": 1},
    "sync": {"available_capacity": 1},
    "start": {"task_id": "t", "lease": "l"},
    "extend": {"task_id": "t", "lease": "l", "seconds": 1},
    "progress": {"task_id": "t", "lease": "l", "progress_percent": 1},
    "result": {"task_id": "t", "lease": "l", "status": "completed"},
}


def _worker_calls() -> list[tuple[str, str]]:
    """Every route in a worker's name: what an operator says of a worker is not one."""
    app = litestar_app(offline_service())
    return sorted(
        (method, route.path_format)
        for route in app.routes
        if isinstance(route, HTTPRoute) and route.path_format.startswith("/internal/workers/{worker_id}")
        for method in route.methods
        if method != "OPTIONS"
    )


CALLS = _worker_calls()
each_call = pytest.mark.parametrize(("method", "path"), CALLS, ids=[f"{method} {path}" for method, path in CALLS])


@pytest.fixture
def auth() -> Auth:
    return "keys"


@pytest.fixture(autouse=True)
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys made a moment ago are known at once."""
    monkeypatch.setattr(auth_module, "CACHE_SECONDS", 0.0)


async def _bench(service: Service, http: httpx.AsyncClient, role: str = "worker") -> Bench:
    """One caller with a key of its own."""
    key = await service.access_keys.create("somebody", role, 0)
    transport: Any = http._transport  # pyright: ignore[reportPrivateUsage]
    headers = {"Authorization": f"Bearer {key}"}
    return Bench(httpx.AsyncClient(transport=transport, base_url="http://tideq", headers=headers))


async def _call(bench: Bench, method: str, path: str, worker_id: str) -> httpx.Response:
    body = BODIES.get(path.rpartition("/")[2], {})
    return await bench.http.request(method, path.format(worker_id=worker_id), json=body)


def test_the_route_table_has_the_worker_calls() -> None:
    verbs = {path.removeprefix("/internal/workers/{worker_id}").strip("/") for _, path in CALLS}

    assert verbs == {"", "poll", "start", "extend", "progress", "result", "heartbeat", "sync"}


@each_call
async def test_a_call_with_the_key_that_registered_the_worker_is_let_through(
    service: Service, http: httpx.AsyncClient, method: str, path: str
) -> None:
    bench = await _bench(service, http)
    worker_id = await bench.register(name="mill")

    answer = await _call(bench, method, path, worker_id)

    assert answer.status_code in (200, 404), answer.text
    if answer.status_code == 404:
        assert_problem(answer, 404, "task-not-found")


@pytest.mark.parametrize("role", ["worker", "admin"])
@each_call
async def test_a_call_for_a_worker_of_another_key_is_forbidden_and_changes_nothing(
    service: Service, http: httpx.AsyncClient, kit: Kit, method: str, path: str, role: str
) -> None:
    worker_id = await (await _bench(service, http)).register()
    await kit.submit()
    stranger = await _bench(service, http, role)
    before = await kit.dump()

    answer = await _call(stranger, method, path, worker_id)

    assert worker_id in assert_problem(answer, 403, "forbidden")["detail"]
    assert await kit.dump() == before


@pytest.mark.parametrize(
    "forgery", ["w1", "x", "another random part", "another name", "another mark", "no mark", "é" * 20]
)
@each_call
async def test_a_call_for_a_made_up_worker_is_forbidden(
    service: Service, http: httpx.AsyncClient, method: str, path: str, forgery: str
) -> None:
    bench = await _bench(service, http)
    worker_id = await bench.register(name="mill")

    answer = await _call(bench, method, path, _forged(worker_id, forgery))

    assert_problem(answer, 403, "forbidden")


def _forged(worker_id: str, how: str) -> str:
    unmarked, mark = worker_id[:-MARK_LENGTH], worker_id[-MARK_LENGTH:]
    return {
        "another random part": f"{unmarked[:-1]}{'0' if unmarked[-1] != '0' else '1'}{mark}",
        "another name": worker_id.replace("mill", "bill"),
        "another mark": f"{unmarked}{mark[::-1]}",
        "no mark": unmarked,
    }.get(how, how)


async def test_a_worker_of_a_revoked_key_is_not_taken_over_by_the_next_one(
    service: Service, http: httpx.AsyncClient
) -> None:
    old, new = await _bench(service, http), await _bench(service, http)
    worker_id = await old.register()
    await service.access_keys.revoke(old.http.headers["authorization"].split("_")[1])

    assert_problem(await _call(old, "POST", "/internal/workers/{worker_id}/heartbeat", worker_id), 401)
    assert_problem(await _call(new, "POST", "/internal/workers/{worker_id}/heartbeat", worker_id), 403)


async def test_an_admin_may_drain_a_worker_it_did_not_register(service: Service, http: httpx.AsyncClient) -> None:
    worker_id = await (await _bench(service, http)).register()
    admin = await _bench(service, http, "admin")

    assert (await admin.call("POST", f"/api/v1/workers/{worker_id}/drain"))["status"] == "draining"


async def test_the_check_asks_the_store_nothing(
    service: Service, http: httpx.AsyncClient, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth_module, "CACHE_SECONDS", 3600.0)
    bench = await _bench(service, http)
    worker_id = await bench.register()
    before = (await kit.client.info("commandstats"))["cmdstat_evalsha"]["calls"]

    for _ in range(10):
        await bench.call("POST", f"/internal/workers/{worker_id}/heartbeat")

    assert (await kit.client.info("commandstats"))["cmdstat_evalsha"]["calls"] - before == 10


@pytest.mark.parametrize("name", ["w", "a" * 40, "A.b_c-9"])
def test_an_id_is_a_name_and_fits_only_its_key(name: str) -> None:
    worker_id = make_worker_id(name, "digest")

    assert NAME.fullmatch(worker_id)
    assert worker_id.startswith(name)
    assert is_made_for(worker_id, "digest")
    assert not is_made_for(worker_id, "other")


def test_every_character_of_a_mark_counts() -> None:
    worker_id = make_worker_id("mill", "digest")

    for place in range(len(worker_id)):
        for other in set(string.ascii_lowercase + string.digits + "-") - {worker_id[place]}:
            assert not is_made_for(worker_id[:place] + other + worker_id[place + 1 :], "digest")


class TestWithoutKeys:
    @pytest.fixture
    def auth(self) -> Auth:
        return "off"

    async def test_any_registered_worker_is_spoken_for_by_anyone(self, bench: Bench, kit: Kit) -> None:
        await kit.worker("made-elsewhere")

        assert (await bench.poll("made-elsewhere"))["tasks"] == []
