"""A store that lost everything is filled from history: every live task where it was, and closed until it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.running import environ
from tests.contract.situations import held
from tests.history.conftest import kit_on
from tests.history.population import ERROR, KEYED, ROOMY, SHARED, Population, claim_order, line_up, populate, standing
from tests.history.servers import Server, command, finished, own_valkey
from tests.history.situations import replicate_all, rows, until, until_open
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.attempts import Success
from tideq.queue_core.engine import Engine, assemble_engine
from tideq.queue_core.errors import StaleLease, StoreReplaced, WrongState
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.access_keys import AccessKeys
from tideq.queue_core.store.restore import StoreRestore

FEW, MANY = 1_000, 20_000


@pytest.fixture
def settings() -> QueueSettings:
    return ROOMY


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    with own_valkey(tmp_path / "valkey") as server:
        yield server


@pytest.fixture
def store(valkey: Server) -> StoreUnderTest:
    return StoreUnderTest("valkey", valkey.redis_url)


@pytest.fixture
async def population(kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest) -> Population:
    """As it was; the store has been wiped and rebuilt since."""
    population = await populate(kit, FEW)
    await replicate_all(kept, store.url, kit, migrated)
    await kit.client.flushall()
    with pytest.raises(StoreReplaced):
        await kit.submit()
    await until_open(kit)
    return population


async def test_every_live_task_is_back_as_it_was_and_nothing_else_is(kit: Kit, population: Population) -> None:
    after = await kit.insight.snapshot()

    assert standing(after) == population.live
    assert after.records.keys() == after.queue.keys()
    assert after.ages == population.before.ages
    assert kit.engine.scripts.epoch == "2"


async def test_what_waited_is_claimed_in_the_same_order(kit: Kit, population: Population) -> None:
    await kit.worker("any", capabilities=("gpu",), capacity=10_000)
    await kit.controls.resume("low-type")
    await kit.controls.limit()

    claimed: list[str] = []
    while tasks := (await kit.queue.claim("any", 500)).tasks:
        claimed.extend(task.task_id for task in tasks)

    before = population.before
    assert line_up(before, claimed) == line_up(before, claim_order(before))
    assert len(claimed) > FEW / 2


async def test_workers_finish_what_they_held_with_the_leases_they_have_and_only_once(
    kit: Kit, population: Population
) -> None:
    started = await kit.attempts.start("w1", held(*population.assigned))
    running = held(*population.assigned, *population.executing)
    first = await kit.attempts.complete("w1", [Success(*each, b'"mine"') for each in running])
    again = await kit.attempts.complete("w1", [Success(*each, b'"mine"') for each in running])
    other = await kit.attempts.complete("w1", [Success(*each, b'"another"') for each in running])
    late = await kit.attempts.complete("w1", [Success(*each) for each in held(*population.retrying)])

    assert [outcome.error for outcome in (*started, *first, *again)] == [None] * (50 + 100 + 100)
    assert all(isinstance(outcome.error, WrongState | StaleLease) for outcome in (*other, *late))


async def test_what_a_worker_held_it_holds_for_at_least_as_long_as_a_claim_lasts(
    kit: Kit, population: Population
) -> None:
    after = await kit.insight.snapshot()

    for task in (*population.assigned, *population.executing):
        was, is_now = population.before.queue[task.task_id], after.queue[task.task_id]
        assert is_now >= max(was, population.before.now_ms + kit.settings.leases.assignment_ms)
    assert after.held["w1"] == {task.task_id for task in (*population.assigned, *population.executing)}


async def test_earlier_errors_can_be_read_and_retries_wait_out_their_backoff(kit: Kit, population: Population) -> None:
    after = await kit.insight.snapshot()

    for task in await kit.queue.read_many([each.task_id for each in population.retrying]):
        assert task is not None
        assert (task.errors, task.retry_count) == ((ERROR,), 1)
        assert after.queue[task.task_id] == population.before.queue[task.task_id] > 0


async def test_a_key_stands_for_its_task_as_before(kit: Kit, population: Population) -> None:
    again = [*await kit.queue.submit_many(KEYED), *await kit.queue.submit_many(SHARED)]

    before = (*population.keyed, *population.shared)
    assert [(each.task_id, each.is_new) for each in again] == [(task_id, False) for task_id in before]


async def test_dead_letters_keys_pauses_limits_and_the_fleet_are_back(kit: Kit, population: Population) -> None:
    after, stats = await kit.insight.snapshot(), await kit.insight.stats()
    fleet = {each.worker.worker_id: each for each in (await kit.fleet.members()).members}

    assert after.dead == {task.task_id for task in population.dead}
    assert [(key.name, key.role) for key in await AccessKeys(kit.client, kit.keys).all()] == [("ann", "admin")]
    assert stats.controls["low-type"].pause is not None
    assert stats.controls["low-type"].pause.reason == "by hand"
    assert (stats.controls["*"].limits.tasks_per_second, stats.controls["*"].limits.max_executing) == (1_000, 5_000)
    assert [(each.status, each.worker.version) for each in fleet.values()] == [("active", ""), ("draining", "1.2.3")]


async def test_workers_are_given_time_to_say_that_they_live(kit: Kit, population: Population) -> None:
    await kit.clock.advance(kit.settings.leases.heartbeat_timeout_ms - 20_000)

    await kit.fleet.heartbeat("w1")
    await kit.queue.sweep()

    assert {each.worker.worker_id for each in (await kit.fleet.members(("dead",))).members} == set()


async def test_history_goes_on_with_the_next_version_of_every_task(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, population: Population
) -> None:
    await kit.attempts.complete("w1", [Success(*each) for each in held(*population.executing)])
    await replicate_all(kept, store.url, kit, migrated)

    finished = [task.task_id for task in population.executing]
    story = "SELECT DISTINCT epoch, version, state FROM task_events WHERE task_id = ANY (%s::uuid[]) ORDER BY 1, 2"
    assert await rows(migrated, story, finished) == [
        (1, 1, "queued"),
        (1, 2, "assigned"),
        (1, 3, "executing"),
        (2, 4, "completed"),
    ]
    assert await rows(migrated, "SELECT FROM parked_events") == []


@pytest.fixture
def command_line(
    store: StoreUnderTest, queue_settings: QueueSettings, history_settings: HistorySettings
) -> dict[str, str]:
    return environ(store.url, queue_settings.queue_name, DATABASE_URL=history_settings.database_url)


async def test_a_rebuild_killed_in_the_middle_leaves_the_store_closed_and_the_next_start_completes_it(
    migrated: Database,
    store: StoreUnderTest,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
    command_line: dict[str, str],
    tmp_path: Path,
) -> None:
    async with open_store(store.url, queue_settings, history_settings) as kept:
        kit = kit_on(kept, queue_settings)
        population = await populate(kit, MANY)
        await replicate_all(kept, store.url, kit, migrated)

    client = store.client()
    restoration = StoreRestore(client, queue_settings)
    with command(command_line, tmp_path / "rebuild.log", "rebuild", "--force") as process:
        await until(lambda: _is_half_full(restoration, client, kit))
        process.kill()
        process.wait()
    assert not (await restoration.status()).is_usable
    with pytest.raises(StoreReplaced):
        await make_engine(client, queue_settings, epoch="1").queue.submit(KEYED[0])
    await client.aclose()

    async with open_store(store.url, queue_settings, history_settings) as kept:
        kit = kit_on(kept, queue_settings)
        assert standing(await kit.insight.snapshot()) == population.live
        await kit.assert_sound()


async def _is_half_full(restoration: StoreRestore, client: Any, kit: Kit) -> bool:
    count = await client.hlen(kit.keys.key("records"))
    return not (await restoration.status()).is_usable and 1_000 < count < MANY * 3 // 4


def make_engine(client: Any, settings: QueueSettings, epoch: str) -> Engine:
    """Of a process that was let in before."""
    engine = assemble_engine(client, settings)
    engine.scripts.epoch = epoch
    return engine


async def test_the_rebuild_command_says_what_it_would_do_does_it_once_and_all_over_only_when_forced(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, command_line: dict[str, str]
) -> None:
    population = await populate(kit, FEW)
    await replicate_all(kept, store.url, kit, migrated)

    sound = finished(command_line, "rebuild")
    forced = finished(command_line, "rebuild", "--force")
    await until_open(kit)

    live = len(population.live)
    counted = f"history: {live} live tasks (50 assigned, 50 executing, {live - 100} queued)"
    assert "nothing to do" in sound.stdout
    assert counted in sound.stdout
    assert "30 dead letters, 21 idempotency keys" in sound.stdout
    assert "rebuilt under epoch 2" in forced.stdout
    assert standing(await kit.insight.snapshot()) == population.live


async def test_a_dry_run_says_what_an_empty_store_would_get_and_leaves_it_empty(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, command_line: dict[str, str]
) -> None:
    await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    await kit.client.flushall()

    said = finished(command_line, "rebuild", "--dry-run")

    assert "store: the store is empty" in said.stdout
    assert "would rebuild" in said.stdout
    assert await kit.client.dbsize() == 0
    await until_open(kit)


async def test_a_store_that_is_newer_than_its_history_is_not_rebuilt_unless_forced(
    migrated: Database,
    store: StoreUnderTest,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
    command_line: dict[str, str],
) -> None:
    """As after PostgreSQL was set back to a backup from before the store's last epoch."""
    async with open_store(store.url, queue_settings, history_settings) as kept:
        kit = kit_on(kept, queue_settings)
        await kit.submit()
        await replicate_all(kept, store.url, kit, migrated)
        late = await kit.submit()
        restoration = StoreRestore(kept.unguarded_client, kit.settings)
        await restoration.enter(await restoration.status(), "2")

    said = finished(command_line, "rebuild")

    assert "nothing to do" in said.stdout
    async with open_store(store.url, queue_settings, history_settings) as kept:
        assert (await kit_on(kept, queue_settings).read(late)).task_id == late


async def test_a_forced_rebuild_loses_nothing_that_was_never_replicated(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, command_line: dict[str, str]
) -> None:
    await kit.worker()
    known = await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    unknown = [await kit.submit() for _ in range(3)]
    await kit.complete(await kit.started(), result=b'"done"')

    asked = finished(command_line, "rebuild", "--dry-run", "--force")
    forced = finished(command_line, "rebuild", "--force")
    await until_open(kit)

    assert "transitions that history lacks" in asked.stdout
    assert "rebuilt under epoch 2" in forced.stdout
    assert dict(await rows(migrated, "SELECT task_id::text, state FROM tasks")) == {
        known: "completed",
        **dict.fromkeys(unknown, "queued"),
    }
    assert [task.task_id for task in (await kit.queue.claim("w1", 10)).tasks] == unknown
    assert await rows(migrated, "SELECT count(*) FROM task_events") == [(7,)]


async def test_a_store_closed_before_history_had_everything_is_rebuilt_with_what_it_has(
    migrated: Database, store: StoreUnderTest, queue_settings: QueueSettings, history_settings: HistorySettings
) -> None:
    """As left by a forced rebuild that was killed at once."""
    async with open_store(store.url, queue_settings, history_settings) as kept:
        kit = kit_on(kept, queue_settings)
        known = await kit.submit()
        await replicate_all(kept, store.url, kit, migrated)
        unknown = await kit.submit()
        restoration = StoreRestore(kept.unguarded_client, queue_settings)
        await restoration.close(await restoration.status())

    async with open_store(store.url, queue_settings, history_settings) as kept:
        kit = kit_on(kept, queue_settings)
        assert [(await kit.read(each)).state.value for each in (known, unknown)] == ["queued", "queued"]
        await kit.assert_sound()


async def test_a_store_left_closed_is_not_opened_without_its_history_and_that_is_said(
    kit: Kit, kept: OpenStore, store: StoreUnderTest, queue_settings: QueueSettings
) -> None:
    restoration = StoreRestore(kept.unguarded_client, queue_settings)
    sealed = await restoration.close(await restoration.status())

    said = finished(environ(store.url, queue_settings.queue_name), "monitor")

    assert (said.returncode, "DATABASE_URL" in said.stderr, "closed" in said.stderr) == (2, True, True)
    assert (await restoration.status()).epoch == sealed.epoch
    await restoration.enter(sealed, "1")
