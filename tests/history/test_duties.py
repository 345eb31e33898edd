"""What a process does beside answering survives whatever a store or a database may say, each duty by itself."""

import asyncio
import contextlib
import functools
import importlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from structlog.testing import capture_logs

from tests.architecture.maps import ROOT
from tests.history.situations import rows, until
from tests.kit import Kit
from tests.stores import StoreUnderTest, free_port
from tideq.api.app import create_app
from tideq.api.server import listen, serve
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings
from tideq.cli.background_duties import run_all_duties
from tideq.cli.checks.finding import Finding
from tideq.cli.checks.service import check_service
from tideq.client import Client
from tideq.persistence.database import Database
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import HistorySettings
from tideq.queue_core import controls, duties
from tideq.queue_core.background import background_task
from tideq.queue_core.duties import STALE_AFTER_SECONDS, STORE_CHECK, DutiesEnded
from tideq.queue_core.errors import QueueError, Unavailable
from tideq.queue_core.polls.waiting_polls import WaitingPoll
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import Probing, QueueSettings, SettingsError
from tideq.queue_core.store import duty_board
from tideq.queue_core.store.clock import StoreClock
from tideq.queue_core.store.connect import connect
from tideq.workers.monitor import pruner
from tideq.workers.monitor.dead_letter_alerts import alert_for_ever
from tideq.workers.monitor.recounter import recount_for_ever

up_command = importlib.import_module("tideq.cli.up")
OFTEN_SECONDS = 0.2
Change = Callable[[], Awaitable[object]]
SHORT_STALE_AFTER_SECONDS = 1.0
"""After so long a failing duty is stale; other duties are late by less, also on a busy machine."""


class Shaky:
    """A service with all its duties, whose store and database know it by a user and a role of its own."""

    def __init__(self, service: Service, plain: Any, database: Database, role: str, user: str) -> None:
        self.service = service
        self.keys = Keys(service.settings.queue.queue_name)
        self.database, self.plain = database, plain
        clock = StoreClock(plain, self.keys)
        self.kit = Kit(service.client, service.settings.queue, self.keys, service.engine, clock)
        self._role, self._user = role, user

    async def allow(self, *rules: str) -> None:
        await self.plain.execute_command("ACL", "SETUSER", self._user, *rules)

    async def tell_role(self, change: str) -> None:
        """For the sessions to come; those that are there end."""
        role = sql.Identifier(self._role)
        async with self.database.session() as connection:
            await connection.execute(sql.SQL(change).format(role=role))  # pyright: ignore[reportArgumentType]
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (self._role,)
            )

    async def is_in_history(self, task_id: str) -> bool:
        return bool(await rows(self.database, "SELECT FROM tasks WHERE task_id = %s", task_id))


@pytest.fixture
async def shaky(
    store: StoreUnderTest,
    migrated: Database,
    queue_settings: QueueSettings,
    database_url: str,
    queue_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Shaky]:
    """With partitions and keys, so that it has every duty that a store or a database may stop.

    Somebody listens to its events, a poll sleeps, and a caller with a key waits; what it does every minute or hour it
    does all the time.
    """
    monkeypatch.setattr(controls, "ALIGN_SECONDS", OFTEN_SECONDS)
    monkeypatch.setattr(duty_board, "BEAT_SECONDS", OFTEN_SECONDS)
    monkeypatch.setattr(pruner, "INTERVAL_SECONDS", OFTEN_SECONDS)
    monkeypatch.setattr(alert_for_ever, "__defaults__", (OFTEN_SECONDS,))
    monkeypatch.setattr(recount_for_ever, "__defaults__", (OFTEN_SECONDS,))
    probing = Probing(interval_ms=round(OFTEN_SECONDS * 1000), allowed_cidrs=("127.0.0.1/32",))
    if store.name != "valkey":
        pytest.skip("only a real server knows users")
    user = role = f"shaky_{queue_name}"
    plain = connect(store.url)
    await plain.execute_command("ACL", "SETUSER", user, "on", "nopass", "~*", "&*", "+@all")
    async with migrated.session() as connection:
        names = {"role": sql.Identifier(role)}
        await connection.execute(sql.SQL("CREATE ROLE {role} SUPERUSER LOGIN").format(**names))
    path = urlsplit(store.url).path
    settings = ServiceSettings(
        auth="keys",
        redis_url=f"unix://{user}:any@{path}",
        queue=msgspec.structs.replace(queue_settings, probing=probing, partitions=(2,)),
        history=HistorySettings(database_url=make_conninfo(database_url, user=role)),
    )
    try:
        async with open_service(settings) as service:
            shaky = Shaky(service, plain, migrated, role, user)
            async with (
                background_task(run_all_duties(service.store, settings, service.duties)),
                background_task(_wait_for_work(shaky)),
            ):
                key = await service.access_keys.create("ann", "worker", 1)
                caller = await service.authenticator.caller({"authorization": f"Bearer {key}"})
                with service.live_events.subscribe(lambda _: False), service.authenticator.watch_key(caller):
                    first = await shaky.kit.submit()
                    await until(lambda: shaky.is_in_history(first))
                    yield shaky
    finally:
        await plain.execute_command("ACL", "DELUSER", user)
        await plain.aclose()
        async with migrated.session() as connection:
            # A session that ends just now may still have its temporary table, which is the role's.
            await connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", (role,)
            )
            await connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


async def _wait_for_work(shaky: Shaky) -> None:
    """A poll that sleeps, for which lanes are surveyed, and again whenever a fault ended it."""
    await shaky.kit.worker("waits", task_types=("never",))
    while True:
        with contextlib.suppress(QueueError):
            claim = functools.partial(shaky.service.engine.queue.claim, "waits", 1)
            await shaky.service.wakeups.poll(WaitingPoll("waits", "", 1), claim, STALE_AFTER_SECONDS)
        await asyncio.sleep(OFTEN_SECONDS)


FAULTS = {
    "a permission for a command": ("sweep", "journal"),
    "a permission for some keys": (
        "sweep",
        "replication",
        "memory",
        "probe",
        "ready scan",
        "live events",
        "duty board",
        "recount",
        "alignment",
        "key watch",
    ),
    "a permission for channels": ("wake-up subscription",),
    "a key of another kind": ("sweep", "probe"),
    "a database that may only be read": ("replication", "alarm", "prune"),
}
"""What goes wrong for a while, and duties that it meets."""
ELSEWHERE = {STORE_CHECK, "key check"}
"""What is tried by itself: below, in test_custody.py and in tests/api/test_key_limits.py."""


@pytest.mark.parametrize("fault", FAULTS)
async def test_duties_go_on_by_themselves_once_a_fault_is_over(shaky: Shaky, fault: str) -> None:
    workers = [part.keys.key("workers") for part in shaky.kit.engine.parts]
    hits, ends = {
        "a permission for a command": (lambda: shaky.allow("-hkeys", "-hget"), lambda: shaky.allow("+hkeys", "+hget")),
        "a permission for some keys": (lambda: shaky.allow("resetkeys", "~other*"), lambda: shaky.allow("~*")),
        "a permission for channels": (lambda: shaky.allow("resetchannels"), lambda: shaky.allow("&*")),
        "a key of another kind": (
            lambda: shaky.plain.mset(dict.fromkeys(workers, "x")),
            lambda: shaky.plain.delete(*workers),
        ),
        "a database that may only be read": (
            lambda: shaky.tell_role("ALTER ROLE {role} SET default_transaction_read_only = on"),
            lambda: shaky.tell_role("ALTER ROLE {role} RESET default_transaction_read_only"),
        ),
    }[fault]

    with capture_logs() as logs:
        await hits()
        with contextlib.suppress(Unavailable):
            await shaky.kit.submit()
        async with asyncio.timeout(STALE_AFTER_SECONDS):
            while not all(map(shaky.service.duties.error_of, FAULTS[fault])):
                await asyncio.sleep(0.02)
        await ends()
        task_id = await shaky.kit.submit()
        await until(lambda: shaky.is_in_history(task_id))
        async with asyncio.timeout(STALE_AFTER_SECONDS):
            while shaky.service.duties.stale or any(map(shaky.service.duties.error_of, FAULTS[fault])):
                await asyncio.sleep(0.02)

    told = [each["duty"] for each in logs if each["event"] == "duty failed"]
    assert set(FAULTS[fault]) <= set(told)


async def test_every_duty_of_a_service_is_met_by_one_of_these_faults(shaky: Shaky) -> None:
    """A duty that is new has to go on by itself too."""
    kept = {labels[1] for labels in shaky.service.samples()["tideq_duty_stale"]}
    met = {duty for each in FAULTS.values() for duty in each}

    assert kept - ELSEWHERE == met
    assert _named_in_the_sources() == met | ELSEWHERE


def _named_in_the_sources() -> set[str]:
    begun = re.compile(r'uties[()]*\.(?:add|add_periodic|start)\(\s*(?:"([^"]+)"|(STORE_CHECK))')
    folders = (ROOT / name for name in ("api", "persistence", "queue_core", "tideq/cli", "workers"))
    found = (begun.findall(path.read_text()) for folder in folders for path in folder.rglob("*.py"))
    return {name or STORE_CHECK for each in found for name, _ in each}


async def test_a_service_that_starts_without_its_store_waits_and_opens_when_it_is_back(
    store: StoreUnderTest, queue_settings: QueueSettings, unused_user: str
) -> None:
    """It is alive, says what it waits for, and ends at once where the store does not let it in."""
    plain = connect(store.url)
    path = urlsplit(store.url).path
    settings = ServiceSettings(auth="off", redis_url=f"unix://{unused_user}:any@{path}", queue=queue_settings)
    try:
        with pytest.raises(SettingsError, match="REDIS_URL"):
            async with open_service(settings):
                pass

        await plain.execute_command("ACL", "SETUSER", unused_user, "on", "nopass", "~*", "&*", "+@all", "-evalsha")
        async with open_service(settings) as service:
            app: Any = create_app(service)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq") as http:
                alive, closed = await http.get("/livez"), await http.get("/readyz")
                await plain.execute_command("ACL", "SETUSER", unused_user, "+evalsha")

                async def is_ready() -> bool:
                    answer = await http.get("/readyz")
                    return answer.status_code == 200 and not answer.json()["stale_duties"]

                await until(is_ready)
                ready = await http.get("/readyz")
    finally:
        await plain.execute_command("ACL", "DELUSER", unused_user)
        await plain.aclose()

    assert (alive.status_code, closed.status_code) == (200, 503)
    assert "evalsha" in closed.json()["detail"]
    assert ready.json() == {"status": "ready", "stale_duties": [], "stale_elsewhere": []}


async def test_everything_at_once_waits_for_a_database_that_may_only_be_read_and_says_so_once(shaky: Shaky) -> None:
    service = shaky.service
    with capture_logs() as logs:
        await shaky.tell_role("ALTER ROLE {role} SET default_transaction_read_only = on")
        migrating = asyncio.create_task(up_command.migrate_when_back(service.store, service.settings))

        async def has_told() -> bool:
            return any(each["event"] == "waiting for the database" for each in logs)

        await until(has_told)
        is_waiting = not migrating.done()
        await shaky.tell_role("ALTER ROLE {role} RESET default_transaction_read_only")
        await migrating

    assert is_waiting
    told = [
        each["error"] for each in logs if each["event"] == "waiting for the database" and "read-only" in each["error"]
    ]
    assert len(told) == 1


@pytest.fixture
def unused_user(store: StoreUnderTest, queue_name: str) -> str:
    if store.name != "valkey":
        pytest.skip("only a real server knows users")
    return f"waits_{queue_name}"


@pytest.fixture
async def unprivileged(database: Database, database_url: str, queue_name: str) -> AsyncIterator[tuple[str, str]]:
    """A role that owns the queue's schema and is no superuser, and the database's URL for it."""
    role = f"plain_{queue_name}"
    async with database.session() as connection:
        for each in ("CREATE ROLE {role} LOGIN", "GRANT CREATE ON DATABASE {database} TO {role}"):
            names = {"role": sql.Identifier(role), "database": sql.Identifier(connection.info.dbname)}
            await connection.execute(sql.SQL(each).format(**names))
    url = make_conninfo(database_url, user=role)
    async with Database(url, queue_name) as own:
        await migrate(own)
        await Partitions(own, HistorySettings(database_url=url)).make_ahead()
    yield role, url
    async with database.session() as connection:
        await connection.execute(sql.SQL("DROP OWNED BY {role}; DROP ROLE {role}").format(role=sql.Identifier(role)))


async def test_a_missing_grant_is_named_and_stops_one_duty_until_it_is_given_back(
    store: StoreUnderTest,
    database: Database,
    unprivileged: tuple[str, str],
    queue_settings: QueueSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It begins anew by itself, nothing is parked, and the others go on meanwhile."""
    monkeypatch.setattr(duties, "STALE_AFTER_SECONDS", SHORT_STALE_AFTER_SECONDS)
    role, url = unprivileged
    history = HistorySettings(database_url=url)
    settings = ServiceSettings(auth="off", redis_url=store.url, queue=queue_settings, history=history)
    listener, addresses = listen("127.0.0.1", 0), asyncio.Queue[str]()

    async def change_grant(change: str) -> None:
        async with database.session() as connection:
            await connection.execute(sql.SQL(change).format(role=sql.Identifier(role)))  # pyright: ignore[reportArgumentType]

    async def is_in_history(task_id: str) -> bool:
        return bool(await rows(database, "SELECT FROM tasks WHERE task_id = %s", task_id))

    def beside(service: Service) -> Coroutine[Any, Any, None]:
        return run_all_duties(service.store, settings, service.duties)

    async with background_task(serve(settings, addresses.put_nowait, beside, listener)):
        address = await addresses.get()
        async with httpx.AsyncClient(base_url=address) as http:

            async def stale() -> list[str]:
                answer = await http.get("/readyz")
                assert answer.status_code == 200, answer.text
                return [each["duty"] for each in answer.json()["stale_duties"]]

            async def submit() -> str:
                return (await http.post("/api/v1/tasks", json={"task_type": "resize"})).json()["task_id"]

            async def is_replication_stale() -> bool:
                return await stale() == ["replication"]

            async def is_none_stale() -> bool:
                return not await stale()

            first = await submit()
            await until(lambda: is_in_history(first))
            await change_grant("REVOKE ALL ON task_events FROM {role}")
            kept_back = await submit()
            await until(is_replication_stale)
            found = await asyncio.to_thread(_diagnosed, address)
            was_in_history = await is_in_history(kept_back)
            await change_grant("GRANT ALL ON task_events TO {role}")
            await until(is_none_stale)
            await until(lambda: is_in_history(kept_back))

    assert not was_in_history
    assert not await rows(database, "SELECT FROM parked_events")
    assert [each.status for each in found if each.check == "ready"] == ["warn"]
    assert "these duties are stale: replication" in next(each.found for each in found if each.check == "ready")


def _diagnosed(address: str) -> list[Finding]:
    with Client(address) as client:
        return list(check_service(client, is_expected=True))


async def test_a_database_url_that_cannot_be_read_ends_the_start_without_its_password(
    store: StoreUnderTest, queue_settings: QueueSettings
) -> None:
    history = HistorySettings(database_url="postgresql//tideq:secret@127.0.0.1/tideq")
    settings = ServiceSettings(auth="off", redis_url=store.url, queue=queue_settings, history=history)

    with pytest.raises(SettingsError) as caught:
        async with open_service(settings):
            pass

    assert "DATABASE_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_a_service_whose_duties_end_for_good_ends_too(
    store: StoreUnderTest, queue_settings: QueueSettings
) -> None:
    settings = ServiceSettings(auth="off", redis_url=store.url, queue=queue_settings, port=free_port())
    helping: list[asyncio.Task[Any]] = []

    async def beside(_service: Service) -> None:
        task = asyncio.current_task()
        assert task is not None
        helping.append(task)
        await asyncio.Event().wait()

    def cancel(_address: str) -> None:
        asyncio.get_running_loop().call_later(0.1, lambda: helping[0].cancel())

    with pytest.raises(DutiesEnded):
        async with asyncio.timeout(STALE_AFTER_SECONDS):
            await serve(settings, cancel, beside, listen("127.0.0.1", settings.port))


@pytest.mark.parametrize("duty", ["store check", "ready scan", "wake-up subscription", "live events", "duty board"])
async def test_a_service_one_of_whose_duties_ends_for_good_ends_too(
    store: StoreUnderTest, queue_settings: QueueSettings, duty: str
) -> None:
    """Whatever it does beside answering goes on."""
    settings = ServiceSettings(auth="off", redis_url=store.url, queue=queue_settings, port=free_port())

    async def beside(_service: Service) -> None:
        await asyncio.Event().wait()

    def cancel(_address: str) -> None:
        (job,) = (each for each in asyncio.all_tasks() if each.get_name() == duty)
        asyncio.get_running_loop().call_later(0.1, job.cancel)

    with pytest.raises(DutiesEnded), capture_logs() as logs:
        async with asyncio.timeout(STALE_AFTER_SECONDS):
            await serve(settings, cancel, beside, listen("127.0.0.1", settings.port))

    assert [each["duty"] for each in logs if each["event"] == "duty ended"] == [duty]
