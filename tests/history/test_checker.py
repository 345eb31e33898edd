"""The checker finds what it is there for: a history that was tampered with in one place."""

from typing import LiteralString

import pytest

from tests.history.checker import History, connected, differences
from tests.history.load import BUSY, Load
from tests.history.situations import replicate_all
from tests.history.witness import Ledger, OutboxCopy
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.settings import QueueSettings

TAMPERED: dict[str, LiteralString] = {
    "event missing": "DELETE FROM task_events WHERE ctid = (SELECT min(ctid) FROM task_events WHERE version = 2)",
    "event invented": "INSERT INTO task_events SELECT task_id, epoch, 99, at, state, reason, attempt, worker_id, error "
    "FROM task_events WHERE version = 1 LIMIT 1",
    "event changed": "UPDATE task_events SET attempt = attempt + 1 WHERE version = 3",
    "event at another time": "UPDATE task_events SET at = at + interval '1 ms' WHERE version = 4",
    "task missing": "DELETE FROM tasks WHERE task_id = (SELECT min(task_id::text)::uuid FROM tasks)",
    "task behind": "UPDATE tasks SET version = version - 1 WHERE state = 'completed'",
    "result changed": "UPDATE tasks SET result = result || ' ' WHERE state = 'completed'",
    "error changed": "UPDATE tasks SET error = '{}' WHERE state = 'failed'",
    "parameters changed": "UPDATE tasks SET parameters = '{}'",
    "dead letter missing": "DELETE FROM dead_letter_tasks",
    "dead letter too many": "INSERT INTO dead_letter_tasks SELECT task_id, now(), '', '', '', '', '', true FROM tasks "
    "WHERE state = 'queued'",
}


@pytest.fixture
def settings() -> QueueSettings:
    return BUSY


async def test_a_true_history_passes_and_every_tampering_with_it_is_found(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    ledger = Ledger()
    async with OutboxCopy(store.url, kit.keys.key("outbox")) as copy:
        async with Load(kit, ledger).running():
            while len(set(ledger.endings.values())) < 4 or len(ledger.results) < 30:
                await copy.added_count()
        # One that waits for certain: a quick machine leaves none.
        ledger.submitted(await kit.submit(parameters=b"{}"), b"{}")
        happened = await copy.whole()
    await replicate_all(kept, store.url, kit, migrated)

    with connected(history_settings.database_url, migrated.schema) as connection:
        assert differences(History(connection), happened, ledger) == []
        for name, statement in TAMPERED.items():
            connection.execute(statement)
            assert differences(History(connection), happened, ledger) != [], name
            connection.rollback()
        ledger.submitted("01890000-0000-7000-8000-000000000000", b"{}")
        assert differences(History(connection), happened, ledger) != []
