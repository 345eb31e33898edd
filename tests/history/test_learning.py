"""What the stream no longer tells, history reads from the store itself."""

from typing import LiteralString

from structlog.testing import capture_logs

from tests.contract.situations import submit_count
from tests.history.conftest import kit_on
from tests.history.situations import execute, replicate_all, rows
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.kept_store import KeptStore, open_kept_store
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.settings import QueueSettings

STATES = "SELECT task_id::text, state, version FROM tasks"
AT_MOST_THREE: LiteralString = """
CREATE FUNCTION cancel_what_is_large() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM added) > 3 THEN
        RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = 'query_canceled';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER large AFTER INSERT ON tasks REFERENCING NEW TABLE AS added
FOR EACH STATEMENT EXECUTE FUNCTION cancel_what_is_large()
"""
"""What a statement's time limit comes to where three tasks fit into it."""
GAP = "history lacks events that the store has forgotten"


async def test_a_history_younger_than_the_queue_learns_tasks_whose_birth_was_trimmed(
    store: StoreUnderTest, migrated: Database, queue_settings: QueueSettings, history_settings: HistorySettings
) -> None:
    async with open_kept_store(store.url, queue_settings, HistorySettings()) as bare:
        kit = kit_on(bare, queue_settings)
        await kit.worker()
        done = await kit.submit(tags={"env": "test"})
        await kit.complete(await kit.started(), result=b"[1]")
        waiting = await kit.submit()
        await _trim(kit)
        await kit.clock.advance(1)
        (late,) = await submit_count(kit, 1)

    async with open_kept_store(store.url, queue_settings, history_settings) as kept:
        kit = kit_on(kept, queue_settings)
        await replicate_all(kept, store.url, kit, migrated)
        await kit.queue.cancel(waiting)
        await replicate_all(kept, store.url, kit, migrated)

    expected = {(done, "completed", 4), (waiting, "cancelled", 2), (late, "queued", 1)}
    assert set(await rows(migrated, STATES)) == expected
    assert await rows(migrated, "SELECT result FROM tasks WHERE task_id = %s", done) == [("[1]",)]
    assert await rows(migrated, "SELECT task_id::text FROM task_terms WHERE term = 'tag:env=test'") == [(done,)]
    assert {row[0] for row in await rows(migrated, "SELECT task_id::text FROM task_events")} == {waiting, late}
    assert await rows(migrated, "SELECT FROM parked_events") == []


async def test_a_history_set_back_to_a_backup_learns_what_came_after_it(
    kit: Kit, kept: KeptStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.worker()
    (known,) = await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)
    backup = await rows(migrated, "SELECT entry_id, now_ms, event_count FROM checkpoints")
    started = await kit.started()
    await kit.fail(started, error=b'{"message":"boom"}', verdict="discard")
    (unknown,) = await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)
    await _set_back(migrated, backup[0], known, unknown)
    await _trim(kit)
    await kit.clock.advance(1)
    await submit_count(kit, 1)

    with capture_logs() as logs:
        await replicate_all(kept, store.url, kit, migrated)

    found = {task_id: (state, version) for task_id, state, version in await rows(migrated, STATES)}
    assert (found[known], found[unknown], len(found)) == (("dead_letter", 4), ("queued", 1), 3)
    assert await rows(migrated, "SELECT task_id::text FROM dead_letter_tasks") == [(known,)]
    assert [each["log_level"] for each in logs if each["event"] == GAP] == ["error"]
    assert await rows(migrated, "SELECT FROM parked_events") == []


async def test_a_page_that_is_cancelled_is_learned_in_parts(
    store: StoreUnderTest, migrated: Database, queue_settings: QueueSettings, history_settings: HistorySettings
) -> None:
    async with open_kept_store(store.url, queue_settings, HistorySettings()) as bare:
        kit = kit_on(bare, queue_settings)
        known = await submit_count(kit, 10)
        await _trim(kit)
        await kit.clock.advance(1)
        (late,) = await submit_count(kit, 1)
    await execute(migrated, AT_MOST_THREE)

    async with open_kept_store(store.url, queue_settings, history_settings) as kept:
        await replicate_all(kept, store.url, kit_on(kept, queue_settings), migrated)

    assert {row[0] for row in await rows(migrated, STATES)} == {*known, late}


async def test_a_stream_trimmed_below_the_checkpoint_lacks_nothing(
    kit: Kit, kept: KeptStore, migrated: Database, store: StoreUnderTest
) -> None:
    await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)
    await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)
    await _trim(kit, kept=1)
    await submit_count(kit, 1)

    with capture_logs() as logs:
        await replicate_all(kept, store.url, kit, migrated)

    assert [each for each in logs if each["event"] == GAP] == []


async def _trim(kit: Kit, kept: int = 0) -> None:
    await kit.client.xtrim(kit.keys.key("outbox"), maxlen=kept)


async def _set_back(database: Database, backup: tuple[str, int, int], known: str, unknown: str) -> None:
    """To when history had heard of nothing but that the one task was submitted."""
    await execute(database, "DELETE FROM tasks WHERE task_id = %s", unknown)
    await execute(database, "DELETE FROM task_events WHERE task_id = %s OR version > 1", unknown)
    await execute(database, "UPDATE tasks SET state = 'queued', version = 1 WHERE task_id = %s", known)
    await execute(database, "DELETE FROM dead_letter_tasks")
    await execute(database, "UPDATE checkpoints SET entry_id = %s, now_ms = %s, event_count = %s", *backup)
