"""Every program lives its whole life as the user that ships for it, and what it does not need it is refused."""

import re
from collections.abc import AsyncIterator, Callable
from typing import Any, LiteralString, cast

import httpx
import psycopg
import pytest
from redis.exceptions import NoPermissionError

from tests.api.bench import Bench, assert_problem, held, until
from tests.security.guarded import USERS, Guarded, Programs, acl_lines, bearing, commands_of
from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.scripts import LUA, assemble

CONNECTING = "hello ping info time client|setinfo client|setname select evalsha script|load multi exec"
RESTORING = "hset hget hgetall hmget hkeys hscan zadd set scan exists xrange xread xinfo|stream"
"""Whoever opens a store that was lost fills it again, and looks first whether its stream has what history lacks."""
LISTENING = "xrange xrevrange xread xinfo|stream scan hscan subscribe unsubscribe wait waitaof"
RESTORING_SCRIPTS = ("found", "enter_epoch", "restore", "wipe", "read")
RECOUNTING = ("recounted", "ended", "recount")
ALL_SCRIPTS = tuple(sorted(path.name.removesuffix(".lua") for path in LUA.iterdir() if path.name.endswith(".lua")))
NEEDS = {
    "api": (ALL_SCRIPTS, LISTENING),
    "monitor": ((*RESTORING_SCRIPTS, "sweep", "pressure", "follow", "fleet", "judge", *RECOUNTING), RESTORING),
    "replicator": ((*RESTORING_SCRIPTS, "acknowledge", "belongings"), RESTORING),
}
"""The scripts that a program calls, and what it sends besides."""
DANGEROUS = (
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "dir", "/tmp"),
    ("EVAL", "return 1", "0"),
    ("FUNCTION", "LIST"),
    ("SHUTDOWN", "NOSAVE"),
    ("REPLICAOF", "NO", "ONE"),
    ("SAVE",),
    ("ACL", "LIST"),
    ("CLIENT", "KILL", "ID", "1"),
    ("MONITOR",),
    ("MODULE", "LIST"),
    ("MIGRATE", "127.0.0.1", "1", "k", "0", "1"),
    ("RESTORE", "k", "0", "x"),
    ("SORT", "k"),
    ("GET", "somebody:elses"),
    ("SET", "somebody:elses", "1"),
    ("HGETALL", "tideq:{another:0}:access_keys"),
    ("DEL", "tideq:{another:0}:queue"),
    ("PUBLISH", "somebody", "x"),
)
FORBIDDEN = {
    "api": (
        "INSERT INTO tasks SELECT * FROM tasks LIMIT 0",
        "UPDATE tasks SET state = 'completed'",
        "DELETE FROM migrations",
        "DELETE FROM checkpoints",
        "TRUNCATE tasks",
        "DROP TABLE tasks",
        "CREATE TABLE mine (a int)",
        "CREATE TABLE public.mine (a int)",
        "CREATE SCHEMA mine",
        "CREATE TEMPORARY TABLE mine (a int)",
        "ALTER TABLE tasks ADD COLUMN mine int",
        "SET ROLE tideq_owner",
        "SELECT pg_read_file('/etc/passwd')",
        "COPY tasks TO PROGRAM 'true'",
    ),
    "replicator": (
        "TRUNCATE tasks",
        "DROP TABLE tasks",
        "DELETE FROM migrations",
        "CREATE TABLE mine (a int)",
        "CREATE SCHEMA mine",
        "ALTER TABLE tasks ADD COLUMN mine int",
        "SET ROLE tideq_owner",
    ),
    "monitor": ("CREATE ROLE mine", "CREATE TABLE public.mine (a int)", "SELECT pg_read_file('/etc/passwd')"),
    "reader": ("DELETE FROM tasks", "INSERT INTO checkpoints SELECT * FROM checkpoints", "SET ROLE tideq_owner"),
}
each_user = pytest.mark.parametrize("user", USERS)


@pytest.fixture
async def bench(key: str, programs: Programs) -> AsyncIterator[Bench]:
    async with httpx.AsyncClient(base_url=programs.url, headers=bearing(key), timeout=40) as http:
        yield Bench(http)


async def test_a_whole_life_needs_nothing_that_is_not_granted(
    bench: Bench, stores: Guarded, programs: Programs
) -> None:
    stores.store().acl_log_reset()
    worker = await bench.register(capacity=100, task_types=["kept", "dies"])

    await _complete(bench, worker)
    dead = await _die(bench, worker)
    await _control(bench, worker)
    await _look(bench, dead)
    await _clean_up(bench, stores)

    assert stores.refusals() == []
    assert "permission denied" not in "".join(programs.logs().values())


async def test_a_store_that_was_lost_is_filled_again_by_the_same_users(bench: Bench, stores: Guarded) -> None:
    task_id = await bench.submit("kept")
    await _patiently(lambda: _is_in_history(stores, task_id))
    stores.store().acl_log_reset()

    stores.store().flushall()

    async def is_back() -> bool:
        answer = await bench.http.get(f"/api/v1/tasks/{task_id}")
        return answer.status_code == 200 and answer.json()["status"] == "queued"

    await _patiently(is_back)
    assert stores.refusals() == []


async def _is_in_history(stores: Guarded, task_id: str) -> bool:
    with stores.connect() as connection:
        return connection.execute("SELECT FROM tideq.tasks WHERE task_id = %s", (task_id,)).fetchone() is not None


async def _complete(bench: Bench, worker: str) -> None:
    for durability in ("disk", "replica", "history"):
        # Reached or not, or not to be had: what it takes to find out is allowed.
        await bench.http.post("/api/v1/tasks", json={"task_type": "asks-for-more", "durability": durability})
    await bench.submit("kept", idempotency_key="k", tags={"a": "b"})
    task = await bench.started(worker)
    await bench.tell(worker, "progress", task, progress_percent=50)
    await bench.tell(worker, "extend", task, seconds=60)
    await bench.tell(worker, "result", task, status="completed", result=1)
    await bench.call("POST", "/api/v1/tasks/batch", {"tasks": [{"task_type": "kept"}] * 10})
    got = await bench.sync(worker, available_capacity=10)
    holds = [held(each) for each in got["tasks"]]
    await bench.sync(worker, starts=holds, results=[{**each, "status": "completed", "result": 1} for each in holds])


async def _die(bench: Bench, worker: str) -> str:
    task_id = await bench.submit("dies", max_retries=0)
    task = await bench.started(worker)
    await bench.tell(worker, "result", task, status="failed", error={"message": "no", "code": "NO", "retriable": True})
    await _patiently(lambda: _is_known_dead(bench, task_id))
    await bench.call("POST", f"/api/v1/dlq/{task_id}/replay", {})
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}")
    return task_id


async def _is_known_dead(bench: Bench, task_id: str) -> bool:
    return task_id in [task["task_id"] for task in (await bench.call("GET", "/api/v1/dlq"))["tasks"]]


async def _control(bench: Bench, worker: str) -> None:
    await bench.call("POST", "/api/v1/queue/pause", {"reason": "a look"})
    await bench.call("POST", "/api/v1/queue/resume", {})
    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "kept", "tasks_per_second": 100})
    await bench.call("POST", f"/internal/workers/{worker}/heartbeat", {"current_load": 0, "status": "active"})
    await bench.submit("kept")
    (task,) = (await bench.poll(worker, wait_seconds=5))["tasks"]
    await bench.sync(worker, releases=[held(task)])
    await bench.call("POST", f"/api/v1/workers/{worker}/drain", {})


async def _look(bench: Bench, task_id: str) -> None:
    for path in (
        f"/api/v1/tasks/{task_id}?include_history=true",
        f"/api/v1/tasks/{task_id}/explain",
        f"/api/v1/tasks/{task_id}/wait?timeout_seconds=0",
        "/api/v1/tasks?status=completed&count=true",
        "/api/v1/tasks?tag=a:b",
        "/api/v1/queue/stats",
        "/api/v1/queue/tide",
        "/api/v1/queue/trends",
        "/api/v1/dlq/patterns",
        "/api/v1/workers",
        "/api/v1/audit",
    ):
        await bench.call("GET", path)
    assert (await bench.http.get("/metrics")).status_code == 200
    assert (await bench.http.get("/readyz")).status_code == 200


async def _clean_up(bench: Bench, stores: Guarded) -> None:
    """Of the store's and of history's: a task that the store has forgotten is deleted by the API itself."""
    keys = Keys("default")
    task_id = (await bench.call("GET", "/api/v1/tasks?status=completed"))["tasks"][0]["task_id"]
    for name in ("records", "definitions", "results"):
        stores.store().hdel(keys.key(name), task_id)
    removed = await bench.call("DELETE", "/api/v1/tasks?older_than=2100-01-01T00:00:00Z&status=completed")
    assert removed["deleted"] >= 1
    assert_problem(await bench.http.get(f"/api/v1/tasks/{task_id}"), 404)


async def _patiently(is_so: Callable[[], Any]) -> None:
    """As long as a rebuild or a replicator on a busy machine may take."""
    for _ in range(6):
        try:
            return await until(is_so)
        except TimeoutError:
            continue
    raise TimeoutError


@each_user
@pytest.mark.parametrize("command", DANGEROUS, ids=" ".join)
def test_the_store_refuses_what_nobody_needs(stores: Guarded, user: str, command: tuple[str, ...]) -> None:
    with pytest.raises(NoPermissionError):
        stores.store(user).execute_command(*command)


@pytest.mark.parametrize("command", [("HSET", "tideq:{default:0}:meta", "a", "b"), ("EVALSHA", "0" * 40, "0")])
def test_a_reader_reads(stores: Guarded, command: tuple[str, ...]) -> None:
    assert stores.store("reader").hgetall("tideq:{default:0}:counts") is not None
    with pytest.raises(NoPermissionError):
        stores.store("reader").execute_command(*command)


def test_the_store_lets_nobody_in_as_shipped() -> None:
    lines = acl_lines()

    assert lines.pop("default").split()[2] == "off"
    assert set(lines) == {f"tideq-{user}" for user in USERS}
    for line in lines.values():
        words = line.split()
        assert "resetpass" in words
        assert "nopass" not in words
        assert not [word for word in words if word.startswith((">", "#", "+@", "allkeys", "allchannels"))]


@pytest.mark.parametrize("user", NEEDS)
def test_a_program_may_do_what_its_scripts_do_and_no_more(user: str) -> None:
    scripts, besides = NEEDS[user]
    texts = "\n".join(assemble(name).text for name in scripts)
    called = {name.lower() for name in re.findall(r"redis\.p?call\(\s*['\"]([A-Za-z]+)['\"]", texts)}

    assert commands_of(acl_lines()[f"tideq-{user}"]) == called | set(besides.split()) | set(CONNECTING.split())


@pytest.mark.parametrize(("user", "sql"), [(user, sql) for user, all_of_it in FORBIDDEN.items() for sql in all_of_it])
def test_the_database_refuses_what_a_program_does_not_need(stores: Guarded, user: str, sql: str) -> None:
    with stores.connect(user) as connection:
        connection.execute("SET search_path TO tideq")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(cast("LiteralString", sql))


@pytest.mark.parametrize("user", ["migrate", "monitor", "replicator", "api", "reader"])
def test_no_role_is_more_than_a_role(stores: Guarded, user: str) -> None:
    with stores.connect() as connection:
        asked = "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication FROM pg_roles WHERE rolname = %s"
        row = connection.execute(asked, (f"tideq_{user}",)).fetchone()

    assert row == (False,) * 4


def test_everything_belongs_to_the_owner_that_nobody_logs_in_as(stores: Guarded) -> None:
    with stores.connect() as connection:
        owners = connection.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'tideq'").fetchall()
        owner = connection.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'tideq_owner'").fetchone()

    assert owners == [("tideq_owner",)]
    assert owner == (False,)
