"""How long a key lasts that is revoked or changed, also for whoever waits, and as which clients it may submit."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.api.bench import Bench, assert_problem, until
from tests.api.listening import EVENTS
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.api import event_stream
from tideq.api.edge import auth as auth_module
from tideq.api.service import NoKeys, Service
from tideq.api.settings import Auth
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.access_keys import ANY_CLIENT, AccessKey

keys_command = importlib.import_module("tideq.cli.keys")
TASKS, BATCH = "/api/v1/tasks", "/api/v1/tasks/batch"
Change = Callable[[Service, str], Awaitable[object]]


async def _revoke(service: Service, key_id: str) -> None:
    await service.access_keys.revoke(key_id)


async def _demote(service: Service, key_id: str) -> None:
    (key,) = [key for key in await service.access_keys.all() if key.key_id == key_id]
    await _store(service, msgspec.structs.replace(key, role="viewer"))


async def _forget(service: Service, key_id: str) -> None:
    await service.client.hdel(_hash(service), key_id)


async def _store(service: Service, key: Any) -> None:
    await service.client.hset(_hash(service), key.key_id, msgspec.json.encode(key))


def _hash(service: Service) -> str:
    return Keys(service.settings.queue.queue_name, service.settings.queue.partition).key("access_keys")


CHANGES: dict[str, Change] = {"revoked": _revoke, "of another role": _demote, "removed": _forget}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@pytest.fixture
def auth() -> Auth:
    return "keys"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_module, "CACHE_SECONDS", 0.05)
    monkeypatch.setattr(auth_module, "POLL_SECONDS", 0.01)


async def _headers(
    service: Service, role: str = "admin", name: str = "somebody", client_ids: tuple[str, ...] = ()
) -> dict[str, str]:
    return {"Authorization": f"Bearer {await service.access_keys.create(name, role, 0, client_ids)}"}


def _key_id(headers: dict[str, str]) -> str:
    return headers["Authorization"].split("_")[1]


async def _until_watched(service: Service) -> None:
    async def is_so() -> bool:
        return bool(service.authenticator._watched)  # pyright: ignore[reportPrivateUsage]

    await until(is_so)


def test_a_key_that_is_out_is_out_within_five_seconds() -> None:
    assert auth_module.CACHE_SECONDS + auth_module.POLL_SECONDS + event_stream.REVOKED_DRAIN_SECONDS < 5


@each_change
@pytest.mark.parametrize("call", ["poll", "sync"])
@pytest.mark.usefixtures("quick")
async def test_a_poll_that_waits_with_a_key_that_is_out_gets_nothing_more(
    service: Service, http: httpx.AsyncClient, kit: Kit, call: str, change: Change
) -> None:
    headers = await _headers(service, "worker")
    http.headers.update(headers)
    worker_id = await Bench(http).register()
    body = {"available_capacity": 1, "wait_seconds": 30}
    polling = asyncio.create_task(http.post(f"/internal/workers/{worker_id}/{call}", json=body, timeout=60))
    await _until_watched(service)

    await change(service, _key_id(headers))

    assert_problem(await polling, 401, "unauthorized")
    task_id = await kit.submit()
    assert (await kit.read(task_id)).state == "queued"


@pytest.mark.usefixtures("quick")
async def test_a_wait_for_a_task_ends_with_its_key(service: Service, http: httpx.AsyncClient, kit: Kit) -> None:
    headers, task_id = await _headers(service, "viewer"), await kit.submit()
    waiting = asyncio.create_task(http.get(f"{TASKS}/{task_id}/wait", headers=headers, timeout=60))
    await _until_watched(service)

    await service.access_keys.revoke(_key_id(headers))

    assert_problem(await waiting, 401, "unauthorized")


@pytest.mark.usefixtures("quick")
async def test_an_event_stream_ends_with_its_key(service: Service, http: httpx.AsyncClient) -> None:
    headers = await _headers(service, "viewer")
    reading = asyncio.create_task(http.get(EVENTS, headers=headers, timeout=60))
    await _until_watched(service)

    await service.access_keys.revoke(_key_id(headers))

    assert (await reading).text.startswith(": stream opened")


@pytest.mark.parametrize("fault", ["refused", "unexpected"])
@pytest.mark.usefixtures("quick")
async def test_the_watch_over_keys_is_a_duty_that_begins_anew_and_is_seen_to_fail(
    service: Service, http: httpx.AsyncClient, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers that wait are watched again without anybody's next call."""
    headers, other = await _headers(service, "worker"), await _headers(service, "worker", "other")
    http.headers.update(headers)
    worker_id = await Bench(http).register()
    polling = asyncio.create_task(
        http.post(f"/internal/workers/{worker_id}/poll", json={"available_capacity": 1, "wait_seconds": 30}, timeout=60)
    )
    await _until_watched(service)
    keys, aside = _hash(service), f"{_hash(service)}-aside"

    async def is_failing() -> bool:
        return bool(service.duties.error_of("key watch"))

    async def is_well() -> bool:
        return not await is_failing()

    with monkeypatch.context() as patch:
        if fault == "refused":
            await service.client.rename(keys, aside)
            await service.client.set(keys, "of another kind")
        else:
            patch.setattr(service.access_keys, "all", _unexpected)
        await until(is_failing)
        if fault == "refused":
            await service.client.rename(aside, keys)
    await until(is_well)
    await service.access_keys.revoke(_key_id(other))
    assert not polling.done()
    await service.access_keys.revoke(_key_id(headers))

    assert_problem(await polling, 401, "unauthorized")


async def _unexpected() -> list[AccessKey]:
    raise RuntimeError("of no kind anybody thought of")


async def test_the_late_look_whether_there_is_any_key_is_a_duty(service: Service) -> None:
    """It goes on until it can say; then a service that is open to the network without any ends."""
    service.settings = msgspec.structs.replace(service.settings, host="0.0.0.0")  # noqa: S104
    keys = _hash(service)
    await service.client.set(keys, "of another kind")
    checking = asyncio.create_task(service.check_keys_when_reachable())

    async def is_failing() -> bool:
        return "wrong kind" in service.duties.error_of("key check")

    await until(is_failing)
    await service.client.delete(keys)

    with pytest.raises(NoKeys):
        await checking


@pytest.mark.usefixtures("quick")
async def test_a_poll_waits_on_while_the_keys_of_others_change(
    service: Service, http: httpx.AsyncClient, kit: Kit
) -> None:
    http.headers.update(await _headers(service, "worker"))
    other = await _headers(service, "worker", "other")
    worker_id = await Bench(http).register()
    body = {"available_capacity": 1, "wait_seconds": 30}
    polling = asyncio.create_task(http.post(f"/internal/workers/{worker_id}/poll", json=body, timeout=60))
    await _until_watched(service)

    await service.access_keys.revoke(_key_id(other))

    async def is_known() -> bool:
        return any(key.is_revoked for key in service.authenticator._keys_by_id.values())  # pyright: ignore[reportPrivateUsage]

    await until(is_known)
    task_id = await kit.submit()
    assert [task["task_id"] for task in (await polling).json()["tasks"]] == [task_id]


@pytest.mark.parametrize(
    ("client_ids", "asked", "status"),
    [
        ((), None, 201),
        ((), "guest", 201),
        ((), "billing", 403),
        ((), ANY_CLIENT, 403),
        (("billing", "ops"), "ops", 201),
        (("billing",), "guest", 201),
        (("billing",), "billin", 403),
        ((ANY_CLIENT,), "whoever", 201),
        ((ANY_CLIENT,), "not a name", 422),
    ],
)
@pytest.mark.parametrize("role", ["producer", "admin"])
async def test_a_key_submits_as_itself_and_as_the_clients_it_may(
    service: Service,
    http: httpx.AsyncClient,
    kit: Kit,
    role: str,
    client_ids: tuple[str, ...],
    asked: str | None,
    status: int,
) -> None:
    headers = await _headers(service, role, "guest", client_ids)
    task = {"task_type": "resize"} | ({} if asked is None else {"client_id": asked})

    answer = await http.post(TASKS, json=task, headers=headers)

    assert answer.status_code == status, answer.text
    if status == 201:
        assert (await http.get(f"{TASKS}/{answer.json()['task_id']}", headers=headers)).json()["client_id"] == (
            asked or "guest"
        )
    else:
        assert [each["pointer"] for each in answer.json()["errors"]] == ["/client_id"]
        assert (await kit.insight.stats()).by_state["queued"] == 0


async def test_a_batch_names_the_task_whose_client_is_not_the_keys(
    service: Service, http: httpx.AsyncClient, kit: Kit
) -> None:
    headers = await _headers(service, "producer", "guest")
    tasks = [{"task_type": "resize"}, {"task_type": "resize", "client_id": "billing"}]

    problem = assert_problem(await http.post(BATCH, json={"tasks": tasks}, headers=headers), 403, "forbidden")

    assert [each["pointer"] for each in problem["errors"]] == ["/tasks/1/client_id"]
    assert (await kit.insight.stats()).by_state["queued"] == 0


class KeyBefore(msgspec.Struct, frozen=True):
    """As earlier versions keep and read it."""

    key_id: str
    name: str
    role: str
    digest: str
    created_ms: int
    is_revoked: bool = False


async def test_a_key_is_read_by_this_version_and_the_one_before(service: Service) -> None:
    await _store(service, KeyBefore("0" * 12, "old", "producer", "x", 1))
    key_id = (await service.access_keys.create("new", "producer", 2, ["billing"])).split("_")[1]

    old, new = await service.access_keys.all()
    stored = await service.client.hget(_hash(service), key_id)

    assert (old.client_ids, new.client_ids) == ((), ("billing",))
    assert msgspec.json.decode(stored, type=KeyBefore).name == "new"


async def test_clients_are_given_taken_back_and_shown(
    store: StoreUnderTest,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("REDIS_URL", store.url)
    monkeypatch.setenv("TIDEQ_QUEUE", service.settings.queue.queue_name)

    async def key() -> AccessKey:
        (found,) = await service.access_keys.all()
        return found

    await asyncio.to_thread(keys_command.create, "shop.producer", role="producer", client_ids=["billing"])
    (tmp_path / "shop.producer").write_text(capsys.readouterr().out)
    assert (await key()).client_ids == ("billing",)
    await asyncio.to_thread(keys_command.show)
    assert "as billing" in capsys.readouterr().out

    await asyncio.to_thread(keys_command.allow, (await key()).key_id)
    assert (await key()).client_ids == ()
    await asyncio.to_thread(keys_command.adopt, tmp_path, client_ids=["shop.producer=ops", "shop.producer=*"])
    assert (await key()).client_ids == ("ops", "*")
    await asyncio.to_thread(keys_command.adopt, tmp_path)
    assert (await key()).client_ids == ("ops", "*"), (
        "an operator's word is not taken back by a Secret that says nothing"
    )

    for wrong in ("nobody=ops", "shop.producer=", "shop.producer=a b"):
        with pytest.raises(SystemExit):
            await asyncio.to_thread(keys_command.adopt, tmp_path, client_ids=[wrong])
