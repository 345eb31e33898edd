"""Makes a golden folder: what one release keeps, in the store and in history, of tasks in every state.

Run by the code of that release, once, when it is made:

    git archive <commit> | tar x -C <tree>; cd <tree>
    PYTHONPATH=<tree> python <this file> <golden folder>

`store.json` has every key of the queue's store, `history.json` the rows of history's tables, `tasks.json` the tasks as
that release read them. Bytes are written as Latin-1.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import msgspec
from psycopg import sql

from tests.contract.situations import held
from tests.history.conftest import kit_on
from tests.history.servers import Server
from tests.history.situations import replicate_all
from tests.kit import Kit
from tideq.embedded import PostgresOptions, ValkeyOptions, bundled_valkey
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import open_store
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.attempts import ProgressReport, Success
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import NewTask, TraceContext

TABLES = (
    "tasks",
    "task_events",
    "task_terms",
    "dead_letter_tasks",
    "dead_letter_patterns",
    "checkpoints",
    "side_data",
)
ERROR = b'{"message":"upstream timed out","code":"TEMPORARY_UNAVAILABLE","retriable":true}'
TRACE = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=1", "user=7")


async def populate(kit: Kit) -> dict[str, str]:
    """A task of each kind, by a name for it."""
    queue, made = kit.queue, dict[str, str]()
    await kit.worker("w1", task_types=("work",), capacity=50, version="1.2.3", capabilities=("gpu",))

    async def worked(name: str) -> Any:
        made[name] = await kit.submit("work")
        return await kit.claimed()

    for name, verdict in (("failed", "fail"), ("dead", "discard"), ("retrying", "retry")):
        task = await worked(name)
        await kit.start(task)
        await kit.fail(task, error=ERROR, verdict=verdict, code="TEMPORARY_UNAVAILABLE", jitter=0.0)
    task = await worked("completed")
    await kit.start(task)
    await kit.attempts.complete("w1", [Success(task.task_id, task.lease, b'{"width":640}')])
    await queue.cancel((await worked("cancelled")).task_id)
    await kit.attempts.release("w1", held(await worked("released")))
    made["retried"] = made.pop("released")
    task = await kit.claimed()
    await kit.start(task)
    await kit.fail(task, error=ERROR, verdict="discard")
    await queue.replay(task.task_id)
    task = await kit.claimed()
    await kit.start(task)
    await kit.attempts.progress("w1", [ProgressReport(task.task_id, task.lease, 1, 45.0, "12 of 27")])
    made["executing"] = made.pop("retried")
    await worked("assigned")
    full = NewTask(
        "resize", b'{"width": 640, "deep": {"n": 1e3}}', priority="high", required_capabilities=("gpu", "big"),
        timeout_ms=5_000, max_retries=7, idempotency_key="order-1042", tags={"customer": "c-118"},
        backoff=Backoff(1_000, 3.0, 60_000), head_start_ms=2_500, client_id="shop", trace=TRACE,
        searchable={"width": "640"},
    )  # fmt: skip
    made["full"] = (await queue.submit(full)).task_id
    made["scheduled"] = await kit.submit("later", run_at_ms=int(time.time() * 1000) + 86_400_000)
    made["plain"] = await kit.submit("plain")
    await kit.controls.limit("plain", tasks_per_second=1_000)
    return made


async def make(folder: Path, redis_url: str, database_url: str) -> None:
    settings, history = QueueSettings(queue_name="golden"), HistorySettings(database_url=database_url)
    async with Database(database_url, "golden") as database:
        await migrate(database)
        async with open_store(redis_url, settings, history) as kept:
            kit = kit_on(kept, settings)
            made = await populate(kit)
            await replicate_all(kept, redis_url, kit, database)
            tasks = await kit.queue.read_many(list(made.values()))
            _write(folder / "tasks.json", dict(zip(made, tasks, strict=True)))
            _write(folder / "store.json", await _dump(kit))
        async with database.session() as connection:
            rows: dict[str, Any] = {}
            for table in TABLES:
                query = sql.SQL("SELECT to_jsonb(t) FROM {} AS t").format(sql.Identifier(table))
                rows[table] = [row for (row,) in await (await connection.execute(query)).fetchall()]
        _write(folder / "history.json", rows)


async def _dump(kit: Kit) -> dict[str, Any]:
    """By kind and content."""
    found: dict[str, Any] = {}
    async for raw in kit.client.scan_iter(match=kit.keys.tag.replace("{", "[{]") + "*", count=1000):
        name, kind = raw.decode().removeprefix(kit.keys.tag), (await kit.client.type(raw)).decode()
        match kind:
            case "hash":
                content = await kit.client.hgetall(raw)
            case "zset":
                content = await kit.client.zrange(raw, 0, -1, withscores=True)
            case "set":
                content = sorted(await kit.client.smembers(raw))
            case "stream":
                content = await kit.client.xrange(raw)
            case _:
                content = await kit.client.get(raw)
        found[name] = [kind, content]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {_plain(name): _plain(each) for name, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in cast("list[Any]", value)]
    return value


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(_plain(content), indent=1, sort_keys=True) + "\n")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="golden-"))
    server = Server(place, valkey=ValkeyOptions(binary=bundled_valkey()), postgres=PostgresOptions())
    server.start()
    try:
        asyncio.run(make(folder, server.redis_url, server.database_url))
    finally:
        server.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
