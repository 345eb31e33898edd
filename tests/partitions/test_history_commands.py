"""`tideq rebuild`, `reconcile` and `parked` on a queue of several partitions: each says and does it for all of them."""

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import LiteralString

import pytest

from tests.api.running import environ, tideq
from tests.kit import Kit
from tests.partitions.test_history import HOUR_MS, PATIENCE_SECONDS
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.history import lag_of
from tideq.persistence.recovery.open_store import open_store, replicators_of
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.background import background_task
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreClock
from tideq.queue_core.store.connect import connect
from tideq.queue_core.task_id import partition_of

TASK_COUNT = 24
PARTITION_COUNT = 3
REFUSE: tuple[LiteralString, ...] = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = 'data_exception'; END $$",
    "CREATE TRIGGER refusing BEFORE INSERT ON tasks FOR EACH ROW WHEN (NEW.task_type = 'awkward') "
    "EXECUTE FUNCTION refuse()",
)


class Scene:
    """A queue with history; while it is not open, only commands touch it."""

    def __init__(self, url: str, database_url: str) -> None:
        self.url = url
        self.queue = QueueSettings(queue_name=uuid.uuid4().hex[:12], partitions=(PARTITION_COUNT,))
        self.history = HistorySettings(database_url=database_url)
        self.settings = environ(
            url, self.queue.queue_name, DATABASE_URL=database_url, TIDEQ_PARTITIONS=str(PARTITION_COUNT)
        )

    def database(self) -> Database:
        return Database(self.history.database_url, self.queue.queue_name)

    async def prepare(self, *statements: LiteralString) -> None:
        async with self.database() as database:
            await migrate(database)
            await Partitions(database, self.history).make_ahead(time.time_ns() // 1_000_000)
        await self.execute(*statements)

    async def execute(self, *statements: LiteralString) -> None:
        async with self.database() as database, database.session() as connection:
            for each in statements:
                await connection.execute(each)

    @asynccontextmanager
    async def opened(self, *, has_history: bool = True) -> AsyncGenerator[Kit]:
        """With history it has caught up in the end."""
        async with AsyncExitStack() as stack:
            kept = await stack.enter_async_context(open_store(self.url, self.queue, self.history))
            clock = StoreClock(kept.client, *(part.keys for part in kept.engine.parts))
            kit = Kit(kept.client, self.queue, kept.engine.keys, kept.engine, clock)
            assert kept.database is not None
            if has_history:
                replicator = await stack.enter_async_context(replicators_of(kept, self.url, linger_ms=HOUR_MS))
                await stack.enter_async_context(background_task(replicator.run_for_ever()))
            yield kit
            if has_history:
                assert await lag_of(kept.database, kept.client, kept.engine).wait_until_caught_up(PATIENCE_SECONDS)


@pytest.fixture
def scene(store: StoreUnderTest, database_url: str) -> Scene:
    return Scene(store.url, database_url)


async def test_rebuild_puts_the_tasks_of_every_partition_back(scene: Scene) -> None:
    await scene.prepare()
    async with scene.opened() as kit:
        ids = [await kit.submit() for _ in range(TASK_COUNT)]
    client = connect(scene.url)
    await client.delete(*[key async for key in client.scan_iter(match=f"*{scene.queue.queue_name}*")])
    await client.aclose()

    asked = tideq(scene.settings, "rebuild", "--dry-run")
    done = tideq(scene.settings, "rebuild")

    assert len({partition_of(task_id) for task_id in ids}) == PARTITION_COUNT
    assert (asked.returncode, "would rebuild" in asked.stdout) == (0, True), asked.stderr
    assert f"history: {TASK_COUNT} live tasks" in asked.stdout
    assert (done.returncode, "rebuilt under epoch 2, 2, 2" in done.stdout) == (0, True), done.stdout + done.stderr
    async with scene.opened() as kit:
        assert await _states(kit, ids) == ["queued"] * TASK_COUNT
        await kit.assert_sound()


async def test_a_forced_rebuild_loses_nothing_of_any_partition_that_history_had_not_heard_of(scene: Scene) -> None:
    await scene.prepare()
    async with scene.opened(has_history=False) as kit:
        ids = [await kit.submit() for _ in range(TASK_COUNT)]

    done = tideq(scene.settings, "rebuild", "--force")

    assert done.returncode == 0, done.stderr
    async with scene.opened() as kit:
        assert await _states(kit, ids) == ["queued"] * TASK_COUNT
        await kit.assert_sound()


async def test_reconcile_finds_and_mends_what_one_partition_lost(scene: Scene) -> None:
    await scene.prepare()
    async with scene.opened() as kit:
        ids = [await kit.submit() for _ in range(TASK_COUNT)]
        lost = next(task_id for task_id in ids if partition_of(task_id) == PARTITION_COUNT - 1)
    async with scene.opened(has_history=False) as kit:
        keys = kit.engine.parts[PARTITION_COUNT - 1].keys
        await kit.client.hdel(keys.key("records"), lost)
        await kit.client.zrem(keys.key("queue"), lost)

    listed = tideq(scene.settings, "reconcile", "--dry-run")
    mended = tideq(scene.settings, "reconcile")
    after = tideq(scene.settings, "reconcile", "--dry-run")

    assert (listed.returncode, lost in listed.stdout, "1 differences" in listed.stdout) == (0, True, True)
    assert (mended.returncode, "reconciled under epoch" in mended.stdout) == (0, True), mended.stderr
    assert "0 differences" in after.stdout
    async with scene.opened() as kit:
        assert await _states(kit, ids) == ["queued"] * TASK_COUNT
        assert await kit.client.hexists(keys.key("records"), lost), "it is back where its id says"


async def test_parked_lists_tries_again_and_gives_up_in_every_partition(scene: Scene) -> None:
    await scene.prepare(*REFUSE)
    async with scene.opened() as kit:
        ids = [await kit.submit(task_type="awkward") for _ in range(12)]
    one, other = (next(each for each in ids if partition_of(each) == number) for number in (1, 2))

    listed = tideq(scene.settings, "parked", "list", "--output", "jsonl")
    await scene.execute("DROP TRIGGER refusing ON tasks")
    written = tideq(scene.settings, "parked", "retry", one)
    given_up = tideq(scene.settings, "parked", "discard", other, "--yes")
    rest = tideq(scene.settings, "parked", "retry", "--all")
    none = tideq(scene.settings, "parked", "retry", one)

    assert len({partition_of(task_id) for task_id in ids}) == PARTITION_COUNT
    assert all(task_id in listed.stdout for task_id in ids), listed.stdout + listed.stderr
    assert (written.returncode, written.stdout.split()) == (0, [one, "written"])
    assert (given_up.returncode, "1 events discarded" in given_up.stdout) == (0, True)
    assert (rest.returncode, rest.stdout.count("written")) == (0, 10)
    assert none.returncode == 3


async def _states(kit: Kit, ids: list[str]) -> list[str | None]:
    return [task.state.value if task else None for task in await kit.queue.read_many(ids)]
