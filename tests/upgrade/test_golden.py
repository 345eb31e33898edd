"""What every released format left behind, in the store and in history, is read and worked with as if written today.

Each folder in `golden/` was made by the release that wrote the format (`make_golden.py`). FUTURE is the newest of them
as a later version could have left it: with fields behind those that are known, values behind those of definitions,
parts behind those of the last result, notes of other names, and a state and a reason that are not known.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.history.conftest import kit_on
from tests.history.situations import execute, replicate_all, rows
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.dead_letters.dead_letter_list import DeadLetterFilter, DeadLetters
from tideq.persistence.history import History
from tideq.persistence.read.filters import TaskFilter
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.settings import HistorySettings
from tideq.persistence.terms import error_terms
from tideq.queue_core.outbox.monitor_cursor import MonitorCursor
from tideq.queue_core.outbox.stream import BEGINNING, OutboxStream
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import TaskState
from tideq.queue_core.submission import unpack_definition
from tideq.workers.monitor.journal.transition import transitions_in

GOLDEN = Path(__file__).parent / "golden"
FORMATS = sorted(folder.name for folder in GOLDEN.iterdir())
FUTURE = "future"
LATER_FIELDS = "tenant-7\0later\0"
LATER_VALUES = b"\xa8tenant-7\x92\x01\xc3"
"""Of a definition: a text, and a list of a number and a truth, as they are packed."""
LATER_JSON = '"later":["qHRlbmFudC03","kgHD"]'
YEAR_MS = 365 * 86_400_000
LIVE = {"retrying", "executing", "assigned", "full", "scheduled", "plain"}
AGED = ("now_ms", "lane_position", "progress", "visible_at_ms", "lane")
"""What a task in history does not say, or says otherwise a moment later."""


def latin(text: str) -> bytes:
    return text.encode("latin-1")


def read(folder: str, name: str) -> Any:
    return json.loads((GOLDEN / (FORMATS[-1] if folder == FUTURE else folder) / f"{name}.json").read_text())


def later(record: str, separator: str = "\0") -> str:
    """As a version that knows more fields, and a reason that this one does not, would have written it."""
    fields = record.split(separator)
    last_result = 1 + NAMES.index("last_result")
    fields[last_result] += ",later" if fields[last_result] else ""
    if fields[1] == "cancelled":
        fields[1], fields[1 + NAMES.index("reason")] = "expired", "superseded"
    return separator.join(fields) + LATER_FIELDS.replace("\0", separator)


def later_definition(packed: bytes) -> bytes:
    """With two values behind all that are known."""
    values = msgspec.structs.astuple(unpack_definition(packed))
    return bytes((0x90 + len(values) + 2,)) + msgspec.msgpack.encode(values)[1:] + LATER_VALUES


def later_attributes(text: str) -> str:
    """As every replicator writes those of such a definition."""
    beginning = '{"client_id":"anonymous"' if text == "{}" else text[:-1]
    return f"{beginning},{LATER_JSON}}}"


async def fill_store(client: Any, keys_tag: str, folder: str) -> None:
    for name, (kind, content) in read(folder, "store").items():
        key = keys_tag + name
        match kind:
            case "hash":
                values = {latin(field): latin(value) for field, value in content.items()}
                if name == "records" and folder == FUTURE:
                    values = {field: latin(later(value.decode("latin-1"))) for field, value in values.items()}
                if name.startswith("attempt_notes:") and folder == FUTURE:
                    values |= {b"eta": b"soon", b"": b"\xff"}
                if name == "definitions" and folder == FUTURE:
                    values = {field: later_definition(value) for field, value in values.items()}
                await client.hset(key, mapping=values)
            case "zset":
                await client.zadd(key, {latin(member): score for member, score in content})
            case "set":
                await client.sadd(key, *map(latin, content))
            case "stream":
                for entry_id, fields in content:
                    entry = {n: later(v) if len(n) == 36 and folder == FUTURE else v for n, v in fields.items()}
                    await client.xadd(key, {latin(n): latin(v) for n, v in entry.items()}, id=entry_id)
            case _:
                await client.set(key, latin(content))


async def fill_history(database: Database, folder: str) -> None:
    async with database.session() as connection:
        for table, found in read(folder, "history").items():
            for row in found:
                if folder == FUTURE and "record" in row:
                    row["record"] = later(row["record"], "\x1f")
                    row["attributes"] = later_attributes(row["attributes"])
                if folder == FUTURE and row.get("state") == "cancelled":
                    row |= {"state": "expired", "reason": "superseded"}
                insert = sql.SQL("INSERT INTO {0} SELECT * FROM jsonb_populate_record(NULL::{0}, %s)")
                await connection.execute(insert.format(sql.Identifier(table)), (Jsonb(row),))


def expected(folder: str) -> dict[str, dict[str, Any]]:
    """A field of the tasks since then is what it is made of."""
    tasks = {name: {**task, "error_count": len(task["errors"])} for name, task in read(folder, "tasks").items()}
    if folder == FUTURE:
        tasks["cancelled"] |= {"state": "expired", "reason": "superseded"}
    return tasks


def shown(task: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if hasattr(value, "__struct_fields__"):
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        return [plain(each) for each in value] if isinstance(value, list | tuple) else value  # pyright: ignore

    return {name: value for name, value in plain(task).items() if name not in without}


def without(task: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in task.items() if name not in names}


@pytest.fixture(params=[*FORMATS, FUTURE])
def folder(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def kept(
    store: StoreUnderTest,
    migrated: Database,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
    folder: str,
) -> AsyncIterator[OpenStore]:
    """The golden store and the golden history, opened by this version at the instant at which they were left."""
    async with open_store(store.url, queue_settings, HistorySettings()) as bare:
        kit = kit_on(bare, queue_settings)
        await kit.client.delete(*[key async for key in kit.client.scan_iter(match=f"*{queue_settings.queue_name}*")])
        await fill_store(kit.client, kit.keys.tag, folder)
        seconds, _ = await kit.client.time()
        left_ms = int(await kit.client.hget(kit.keys.key("meta"), "now_ms"))
        await kit.client.hset(kit.keys.key("meta"), "clock_offset_ms", left_ms - int(seconds) * 1_000)
    await fill_history(migrated, folder)
    async with open_store(store.url, queue_settings, history_settings) as kept:
        yield kept


async def test_tasks_are_read_from_the_store_as_they_were_left(kit: Kit, folder: str) -> None:
    tasks = expected(folder)

    found = await kit.queue.read_many([each["task_id"] for each in tasks.values()])

    ages = ("now_ms", "lane_position")
    for name, task in zip(tasks, found, strict=True):
        assert task is not None, name
        assert shown(task, without=ages) == without(tasks[name], ages)


async def test_tasks_are_read_and_found_in_history_as_they_were_left(
    kit: Kit, kept: OpenStore, migrated: Database, history_settings: HistorySettings, folder: str
) -> None:
    archive, tasks = History(migrated, kept.engine, kept.client, kit.settings, history_settings), expected(folder)

    page = await archive.listing.page(TaskFilter(), 50)

    listed = {task.task_id: shown(task, without=AGED) for task in page.tasks}
    assert {name: listed[each["task_id"]]["reason"] for name, each in tasks.items()} == {
        name: each["reason"] for name, each in tasks.items()
    }
    for each in tasks.values():
        found = await archive.tasks.find(each["task_id"])
        assert found is not None
        assert shown(found, without=AGED) == without(each, AGED)
        steps = await archive.tasks.transitions(each["task_id"])
        assert [step.version for step in steps] == list(range(1, each["version"] + 1))
    gold = await archive.listing.page(TaskFilter(terms=("tag:customer=c-118",)), 50)
    assert [task.task_id for task in gold.tasks] == [tasks["full"]["task_id"]]
    failed = await archive.listing.page(TaskFilter(terms=tuple(error_terms("upstream timed out"))), 50)
    assert {task.task_id for task in failed.tasks} >= {tasks[name]["task_id"] for name in ("failed", "dead")}
    assert [each.run_ms >= 0 for each in await archive.timings.since(0)] == [True]
    dead_letters = DeadLetters(migrated, 100 * YEAR_MS)
    letters = await dead_letters.page(DeadLetterFilter(), 10)
    assert [(each.task.task_id, each.message) for each in letters.dead_letters] == [
        (tasks["dead"]["task_id"], "upstream timed out")
    ]
    assert "upstream timed out" in {each.message for each in await dead_letters.patterns()}


async def test_tasks_are_claimed_lapse_fail_and_complete(kit: Kit, folder: str) -> None:
    tasks = expected(folder)
    await kit.worker("w2", task_types=("work", "plain", "resize"), capabilities=("gpu", "big"), capacity=50)

    claimed = {task.task_id: task for task in (await kit.queue.claim("w2", 50)).tasks}
    assert set(claimed) == {tasks[name]["task_id"] for name in ("full", "plain")}
    await kit.start(claimed[tasks["plain"]["task_id"]], "w2")
    await kit.fail(claimed[tasks["plain"]["task_id"]], "w2")
    await kit.start(claimed[tasks["full"]["task_id"]], "w2")
    await kit.complete(claimed[tasks["full"]["task_id"]], "w2")
    await kit.clock.advance(30_000)
    await kit.queue.sweep()
    assert (await kit.read(tasks["assigned"]["task_id"])).deliveries == tasks["assigned"]["deliveries"] + 1
    await kit.clock.advance(90_000)
    await kit.queue.sweep()
    assert (await kit.read(tasks["executing"]["task_id"])).losses == 1
    await kit.queue.retry(tasks["failed"]["task_id"])
    await kit.queue.replay(tasks["dead"]["task_id"])
    await kit.queue.purge(tasks["completed"]["task_id"])
    assert (await kit.insight.stats()).unreadable_count == 0
    if folder == FUTURE:
        records = await kit.client.hvals(kit.keys.key("records"))
        assert all(record.endswith(b"\0" + LATER_FIELDS.encode()) for record in records)
    await assert_later_values_are_kept(kit, folder)


async def assert_later_values_are_kept(kit: Kit, folder: str) -> None:
    definitions = await kit.client.hvals(kit.keys.key("definitions"))
    assert definitions
    assert all(packed.endswith(LATER_VALUES) for packed in definitions) == (folder == FUTURE)


async def test_events_are_told_live_and_by_the_journal(kit: Kit, folder: str) -> None:
    count = sum(len(name) == 36 for _, fields in read(folder, "store")["outbox"][1] for name in fields)

    page = await OutboxStream(kit.client, kit.keys).page_after(BEGINNING)
    stretch = await MonitorCursor(kit.client, kit.engine.scripts, kit.keys).page("0-0")

    assert page is not None
    told = [(event.task_id, event.record.text("state"), event.record.text("reason")) for event in page.events]
    journal = [each for entry in stretch.entries for each in transitions_in(entry)]
    assert [(each.task_id, each.state, each.reason) for each in journal][: len(told)] == told
    assert len(journal) == count
    assert ("superseded" in {each.reason for each in journal}) == (folder == FUTURE)
    assert all(each.phases is not None and each.attempt >= 0 for each in journal)


async def test_a_history_that_has_nothing_yet_is_written_as_the_release_wrote_it(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, folder: str
) -> None:
    wanted = "SELECT task_id::text, version, state, reason, record, attributes FROM tasks ORDER BY task_id"
    steps = "SELECT task_id::text, epoch, version, state, reason, attempt, error FROM task_events ORDER BY 1, 2, 3"
    before = [await rows(migrated, wanted), await rows(migrated, steps)]
    for table in ("tasks", "task_events", "task_terms", "dead_letter_tasks"):
        await execute_on(migrated, table)
    await execute(migrated, "UPDATE checkpoints SET entry_id = '0-0'")

    await replicate_all(kept, store.url, kit, migrated)

    assert await rows(migrated, wanted) == before[0]
    if folder != FUTURE:
        assert await rows(migrated, steps) == before[1]
    assert await rows(migrated, "SELECT FROM parked_events") == []


async def execute_on(database: Database, table: str) -> None:
    async with database.session() as connection:
        await connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))


async def test_a_task_that_only_history_has_is_retried_with_all_that_it_was(
    kit: Kit, kept: OpenStore, migrated: Database, history_settings: HistorySettings, folder: str
) -> None:
    archive, task_id = (
        History(migrated, kept.engine, kept.client, kit.settings, history_settings),
        read(folder, "tasks")["failed"]["task_id"],
    )
    for name in ("records", "definitions"):
        await kit.client.hdel(kit.keys.key(name), task_id)

    async with archive.tasks.locked(task_id) as known:
        await kit.queue.retry(task_id, kept=known)

    assert (await kit.read(task_id)).state is TaskState.QUEUED
    await assert_later_values_are_kept(kit, folder)


async def test_a_lost_store_is_rebuilt_with_every_live_task(kit: Kit, kept: OpenStore, folder: str) -> None:
    tasks = expected(folder)
    assert kept.guard is not None

    await kept.guard.rebuild()
    await kept.guard.verify()

    found = await kit.queue.read_many([each["task_id"] for each in tasks.values()])
    live = {name: task for name, task in zip(tasks, found, strict=True) if task is not None}
    assert live.keys() == LIVE
    await assert_later_values_are_kept(kit, folder)
    for name, task in live.items():
        assert (task.rank, task.version, task.attempt) == tuple(
            tasks[name][key] for key in ("rank", "version", "attempt")
        )
        assert task.state in TaskState
