"""Who may call what: every route with every kind of key, and how keys are kept."""

import asyncio
import hashlib
import importlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from litestar import Litestar, get
from litestar.routes import HTTPRoute

from tests.api.bench import Bench, assert_problem
from tests.api.running import environ, tideq
from tests.kit import Kit
from tests.stores import StoreUnderTest, free_port
from tideq.api import app as app_module
from tideq.api.app import create_app, handlers, litestar_app
from tideq.api.edge import auth as auth_module
from tideq.api.edge.auth import allowed_roles, make_worker_id
from tideq.api.operations import PUBLIC
from tideq.api.service import Service, offline_service
from tideq.api.settings import Auth, ServiceSettings, read_service_settings
from tideq.cli.exit_codes import NOT_FOUND, UNREACHABLE
from tideq.persistence.recovery.open_store import OpenStore
from tideq.queue_core.engine import assemble_engine
from tideq.queue_core.settings import QueueSettings, SettingsError
from tideq.queue_core.store.access_keys import ROLES
from tideq.queue_core.store.connect import connect, connect_listener

keys_command = importlib.import_module("tideq.cli.keys")
"""By its path: the package has a `keys` of its own."""
Command = Callable[[Callable[[], None]], Awaitable[str]]

TASK_ID = "0192f0c1-2b3c-7d4e-8f50-112233445566"
ENDLESS = "/api/v1/events"
"""A stream: whoever may have it reads for ever, and here only how the answer begins."""
STRANGERS = ("no key", "another scheme", "nonsense", "unknown key", "wrong secret", "revoked key")


def _routes() -> list[tuple[str, str, frozenset[str]]]:
    """Method, path and roles of every route; an app needs no store to have them."""
    app = litestar_app(offline_service())
    ours = {id(handler) for handler in handlers(app)}
    return sorted(
        (method, route.path_format, allowed_roles(handler))
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        if id(handler) in ours
        for method in handler.http_methods
    )


ROUTES = _routes()
CLOSED = [(method, path) for method, path, roles in ROUTES if PUBLIC not in roles]
each_route = pytest.mark.parametrize(("method", "path", "roles"), ROUTES, ids=[f"{m} {p}" for m, p, _ in ROUTES])
each_closed_route = pytest.mark.parametrize(("method", "path"), CLOSED, ids=[f"{m} {p}" for m, p in CLOSED])


@pytest.fixture
def auth() -> Auth:
    return "keys"


@pytest.fixture
def command(
    store: StoreUnderTest, queue_name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs a verb of `tideq keys` against the service's store; it brings a loop of its own, hence the thread."""
    monkeypatch.setenv("REDIS_URL", store.url)
    monkeypatch.setenv("TIDEQ_QUEUE", queue_name)

    async def run(verb: Callable[[], None]) -> str:
        await asyncio.to_thread(verb)
        return capsys.readouterr().out

    return run


async def _ask(http: httpx.AsyncClient, method: str, path: str, key: str) -> httpx.Response:
    concrete = path.replace("{task_id}", TASK_ID).replace("{worker_id}", _worker_id(key))
    content = b"{}" if method in ("POST", "PUT") else b""
    return await http.request(method, concrete, content=content, headers=_with(key))


async def _assert_begins(service: Service, key: str) -> None:
    """The head of the answer and its first words, as the server is handed them; then the caller goes."""
    told: list[Any] = []
    is_begun = asyncio.Event()
    body: Any = {"type": "http.request", "body": b"", "more_body": False}
    gone: Any = {"type": "http.disconnect"}
    incoming = iter((body,))

    async def receive() -> Any:
        if (message := next(incoming, None)) is not None:
            return message
        await is_begun.wait()
        return gone

    async def send(message: Any) -> None:
        told.append(message)
        if message["type"] == "http.response.body":
            is_begun.set()

    request = httpx.Request("GET", f"http://tideq{ENDLESS}", headers=_with(key))
    scope: Any = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": ENDLESS,
        "raw_path": ENDLESS.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    async with asyncio.timeout(30):
        await create_app(service)(scope, receive, send)
    assert told[0]["status"] == 200
    assert dict(told[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
    assert told[1]["body"].startswith(b":")


def _worker_id(key: str) -> str:
    """An id of the caller's own: others are forbidden whatever the role, see test_worker_binding.py."""
    return make_worker_id("w1", hashlib.sha256(key.split("_", 2)[2].encode()).hexdigest())


async def _key(service: Service, role: str = "admin", name: str = "somebody") -> str:
    return await service.access_keys.create(name, role, 0)


def _with(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def _stranger(service: Service, kind: str) -> str | None:
    key = await _key(service)
    key_id = key.split("_")[1]
    if kind == "revoked key":
        await service.access_keys.revoke(key_id)
    return {
        "no key": None,
        "another scheme": f"Basic {key}",
        "nonsense": "Bearer café",
        "unknown key": f"Bearer tq_{'0' * 12}_{key[-43:]}",
        "wrong secret": f"Bearer tq_{key_id}_{'A' * 43}",
        "revoked key": f"Bearer {key}",
    }[kind]


@pytest.mark.parametrize("role", ROLES)
@each_route
async def test_a_route_answers_the_roles_it_names_and_forbids_the_others(
    service: Service, http: httpx.AsyncClient, method: str, path: str, roles: frozenset[str], role: str
) -> None:
    key = await _key(service, role)
    if path == ENDLESS and role in roles:
        await _assert_begins(service, key)
        return

    answer = await _ask(http, method, path, key)

    if PUBLIC in roles or role in roles:
        assert answer.status_code not in (401, 403)
        assert answer.status_code < 500 or answer.json()["type"].endswith("/history-unavailable"), answer.text
    else:
        assert role in assert_problem(answer, 403, "forbidden")["detail"]


@pytest.mark.parametrize("kind", STRANGERS)
@each_closed_route
async def test_a_stranger_is_refused_everywhere(
    service: Service, http: httpx.AsyncClient, method: str, path: str, kind: str
) -> None:
    authorization = await _stranger(service, kind)
    headers = [] if authorization is None else [(b"authorization", authorization.encode())]
    request = http.build_request(method, path.format(task_id=TASK_ID, worker_id="w1"), headers=headers)

    answer = await http.send(request)

    assert_problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_probes_and_documentation_are_the_only_public_routes(http: httpx.AsyncClient) -> None:
    public = [path for _, path, roles in ROUTES if PUBLIC in roles]

    assert public == ["/livez", "/openapi.json", "/readyz"]
    assert {(await http.get(path)).status_code for path in public} == {200}


@each_route
def test_the_roles_of_a_route_follow_from_what_it_is(method: str, path: str, roles: frozenset[str]) -> None:
    """Said once more in other words, so that a wrong word at a route is noticed."""
    if PUBLIC in roles:
        return
    assert "admin" in roles
    assert ("worker" in roles) == path.startswith("/internal/workers")
    if method != "GET":
        assert "viewer" not in roles
    if path.startswith("/api/v1/queue/") and method != "GET":
        assert roles == {"admin"}


async def test_an_unknown_path_is_a_problem_document_too(service: Service, http: httpx.AsyncClient) -> None:
    headers = _with(await _key(service))

    assert_problem(await http.get("/api/v1/nothing/here", headers=headers), 404)
    assert_problem(await http.put("/api/v1/queue/stats", headers=headers), 405)


def test_a_route_without_roles_is_refused() -> None:
    @get("/forgotten", sync_to_thread=False)
    def forgotten() -> str:
        return ""

    (handler,) = handlers(Litestar([forgotten], openapi_config=None))

    with pytest.raises(TypeError, match="declares no operation"):
        allowed_roles(handler)


def test_an_application_with_a_route_without_roles_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    @get("/forgotten", sync_to_thread=False)
    def forgotten() -> str:
        return ""

    monkeypatch.setattr(app_module.health, "router", forgotten)

    with pytest.raises(TypeError, match="declares no operation"):
        create_app(offline_service())


async def test_a_revoked_key_is_out_once_the_keys_are_read_again(
    service: Service, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth_module, "CACHE_SECONDS", 3600.0)
    key = await _key(service)
    assert (await http.get("/api/v1/queue/stats", headers=_with(key))).status_code == 200

    await service.access_keys.revoke(key.split("_")[1])
    remembered = await http.get("/api/v1/queue/stats", headers=_with(key))
    monkeypatch.setattr(auth_module, "CACHE_SECONDS", 0.0)
    read_again = await http.get("/api/v1/queue/stats", headers=_with(key))

    assert remembered.status_code == 200
    assert_problem(read_again, 401)


async def test_keys_are_remembered_for_no_more_than_a_few_seconds() -> None:
    assert auth_module.CACHE_SECONDS <= 5


async def test_a_secret_is_nowhere_in_the_store(service: Service, kit: Kit) -> None:
    key = await _key(service, name="somebody")
    secret = key.split("_", 2)[2]

    content = repr(await kit.dump())

    assert "somebody" in content
    assert secret not in content


@pytest.mark.parametrize(("name", "role"), [("a b", "admin"), ("", "admin"), ("a", "root"), ("x" * 65, "admin")])
async def test_a_key_with_a_bad_name_or_role_is_not_made(service: Service, kit: Kit, name: str, role: str) -> None:
    before = await kit.dump()

    with pytest.raises(Exception, match=r"is not"):
        await service.access_keys.create(name, role, 0)

    assert await kit.dump() == before


async def test_the_same_id_with_the_secret_of_another_key_is_refused(service: Service, http: httpx.AsyncClient) -> None:
    one, other = await _key(service), await _key(service)
    mixed = f"tq_{one.split('_')[1]}_{other.split('_', 2)[2]}"

    assert_problem(await http.get("/api/v1/queue/stats", headers=_with(mixed)), 401)


async def test_a_store_that_is_away_is_said_to_be_unavailable() -> None:
    """Also while keys are read: neither the caller's fault nor an unforeseen error."""
    url = f"redis://127.0.0.1:{free_port()}"
    client: Any = connect(url)
    store = OpenStore(client, assemble_engine(client, QueueSettings()), None, None, client)
    app: Any = create_app(Service(ServiceSettings(redis_url=url), store, lambda: connect_listener(url)))
    headers = _with(f"tq_{'0' * 12}_{'A' * 43}")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq") as http:
        ready = await http.get("/readyz")
        stats = await http.get("/api/v1/queue/stats", headers=headers)
    await client.aclose()

    assert_problem(ready, 503, "store-unavailable")
    assert_problem(stats, 503, "store-unavailable")
    assert stats.headers["retry-after"]


def test_a_service_without_keys_does_not_listen_on_the_network(store: StoreUnderTest, queue_name: str) -> None:
    settings = environ(store.url, queue_name, TIDEQ_AUTH="keys")

    ended = tideq(settings, "serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104

    assert ended.returncode != 0
    assert "tideq keys create" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_authentication_cannot_be_off_on_the_network(store: StoreUnderTest, queue_name: str) -> None:
    ended = tideq(environ(store.url, queue_name), "serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104

    assert ended.returncode != 0
    assert "TIDEQ_AUTH=off is for loopback only" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "tideq.example", "localhost.example"])  # noqa: S104
def test_no_other_host_than_loopback_may_be_open(host: str) -> None:
    with pytest.raises(SettingsError, match="loopback only"):
        read_service_settings({"TIDEQ_AUTH": "off", "TIDEQ_HOST": host})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_may_be_open(host: str) -> None:
    assert read_service_settings({"TIDEQ_AUTH": "off", "TIDEQ_HOST": host}).auth == "off"


async def test_keys_made_listed_and_revoked_by_the_command_are_the_services(
    http: httpx.AsyncClient, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth_module, "CACHE_SECONDS", 0.0)

    key = (await command(lambda: keys_command.create("shop", role="viewer"))).strip()
    key_id = key.split("_")[1]
    assert re.fullmatch(r"tq_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", key)
    assert (await http.get("/api/v1/queue/stats", headers=_with(key))).status_code == 200
    listed = await command(keys_command.show)
    await command(lambda: keys_command.revoke(key_id))

    assert listed.split() == [key_id, "viewer", "shop"]
    assert_problem(await http.get("/api/v1/queue/stats", headers=_with(key)), 401)
    with pytest.raises(SystemExit) as ended:
        await command(lambda: keys_command.revoke("nobody"))
    assert ended.value.code == NOT_FOUND


async def test_making_a_key_without_a_store_says_so(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}")

    with pytest.raises(SystemExit) as ended:
        await command(lambda: keys_command.create("shop", role="viewer"))
    assert ended.value.code == UNREACHABLE


async def test_a_task_is_submitted_in_the_name_of_its_key(service: Service, http: httpx.AsyncClient) -> None:
    headers = _with(await _key(service, "producer", "shop"))

    task_id = (await http.post("/api/v1/tasks", json={"task_type": "resize"}, headers=headers)).json()["task_id"]

    assert (await http.get(f"/api/v1/tasks/{task_id}", headers=headers)).json()["client_id"] == "shop"


async def test_one_callers_idempotency_key_is_not_anothers(service: Service, http: httpx.AsyncClient) -> None:
    callers = [_with(await _key(service, "producer", name)) for name in ("shop", "mill")]
    body = {"task_type": "resize", "idempotency_key": "k"}

    answers = [await http.post("/api/v1/tasks", json=body, headers=headers) for headers in callers]

    assert len({answer.json()["task_id"] for answer in answers}) == 2


async def test_a_pause_is_kept_with_the_name_of_who_paused(service: Service, http: httpx.AsyncClient) -> None:
    http.headers.update(_with(await _key(service, "admin", "boss")))
    bench = Bench(http)

    await bench.call("POST", "/api/v1/queue/pause", {"reason": "a | b"})
    (limit,) = (await bench.call("GET", "/api/v1/queue/limits"))["limits"]

    assert (limit["paused_by"], limit["reason"], limit["task_type"]) == ("boss", "a | b", None)
