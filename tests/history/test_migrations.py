"""Migrations: applied once, in order, by one process at a time, and never changed afterwards."""

import re
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.api.running import environ
from tests.history.scale import PATIENCE_SECONDS
from tests.history.schema import SCHEMA, described
from tests.history.servers import command, finished, own_postgres
from tests.history.situations import execute, rows
from tests.stores import StoreUnderTest, free_port
from tideq.persistence.database import Database
from tideq.persistence.schema.migrations import (
    RETRY_SECONDS,
    Migration,
    MigrationError,
    migrate,
    migrate_when_reachable,
    missing_migrations,
    missing_when_migrated,
    shipped_migrations,
)
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.errors import HistoryUnavailable

Wait = Callable[[Database, float], Awaitable[list[Migration]]]
APPLIED = [f"applied: {each.number:04} {each.name}" for each in shipped_migrations()]


@pytest.fixture
def command_line(store: StoreUnderTest, queue_name: str, history_settings: HistorySettings) -> dict[str, str]:
    return environ(store.url, queue_name, DATABASE_URL=history_settings.database_url)


async def test_the_migrations_add_up_to_the_schema_that_is_written_down(
    database: Database, history_settings: HistorySettings
) -> None:
    await migrate(database)
    async with Database(history_settings.database_url, f"{database.schema}_written") as written:
        await execute(written, f'CREATE SCHEMA "{written.schema}"')  # pyright: ignore[reportArgumentType]
        await execute(written, SCHEMA.read_text())  # pyright: ignore[reportArgumentType]

        assert await described(written) == await described(database), "run `make schema`"


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [migration.number for migration in shipped_migrations()] == [*range(1, len(shipped_migrations()) + 1)]


async def test_four_processes_that_migrate_at_once_apply_every_migration_once(
    database: Database, command_line: dict[str, str], tmp_path: Path
) -> None:
    logs = [tmp_path / f"migrate-{number}.log" for number in range(4)]
    with ExitStack() as running:
        processes = [running.enter_context(command(command_line, log, "migrate")) for log in logs]
        codes = [process.wait(240) for process in processes]

    said = [log.read_text() for log in logs]
    assert codes == [0] * 4
    assert sorted(line for each in said for line in each.splitlines() if line.startswith("applied")) == APPLIED
    assert sum("up to date" in each for each in said) == 3
    assert await rows(database, "SELECT count(*) FROM migrations") == [(len(APPLIED),)]
    assert len({name for (name,) in await rows(database, PARTITIONS)}) == len(await rows(database, PARTITIONS)) > 2


PARTITIONS = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'tasks'::regclass"


async def test_a_migration_that_was_edited_is_refused(database: Database, command_line: dict[str, str]) -> None:
    await migrate(database)
    await execute(database, "UPDATE migrations SET digest = 'of another text' WHERE number = 1")

    with pytest.raises(MigrationError, match="0001 history is not this version's"):
        await migrate(database)
    answer = finished(command_line, "migrate", "status")
    assert answer.returncode == 1
    assert "0001 history is not this version's" in answer.stderr


async def test_a_database_of_a_later_version_is_refused(database: Database) -> None:
    await migrate(database)
    await execute(database, "INSERT INTO migrations (number, name, digest) VALUES (9999, 'later', '')")

    with pytest.raises(MigrationError, match="9999, which this version lacks"):
        await missing_migrations(database)


async def test_status_fails_while_something_is_missing_and_changes_nothing(
    database: Database, command_line: dict[str, str]
) -> None:
    before = finished(command_line, "migrate", "status")
    tables = await rows(database, "SELECT FROM pg_tables WHERE schemaname = %s", database.schema)
    await migrate(database)
    after = finished(command_line, "migrate", "status")

    assert (before.returncode, after.returncode) == (1, 0)
    assert "missing: 0001 history" in before.stdout
    assert tables == []


async def test_without_its_schema_a_database_says_what_to_do(database: Database) -> None:
    with pytest.raises(HistoryUnavailable, match="tideq migrate"):
        await rows(database, "SELECT FROM tasks")


def test_migrate_waits_for_a_database_that_is_still_starting(
    store: StoreUnderTest, queue_name: str, tmp_path: Path
) -> None:
    with own_postgres(tmp_path / "postgres") as postgres:
        settings = environ(store.url, queue_name, DATABASE_URL=postgres.database_url)
        postgres.stop()
        refused = finished(settings, "migrate")
        with command(settings, tmp_path / "migrate.log", "migrate", "--wait", "30") as waiting:
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(3)
            postgres.start()
            assert waiting.wait(120) == 0

    assert refused.returncode == 5
    assert refused.stderr.startswith("error: ")


def test_who_waits_without_an_end_goes_on_with_the_database_that_comes_back_and_ends_for_a_wrong_password(
    store: StoreUnderTest, queue_name: str, tmp_path: Path
) -> None:
    """As the chart's pods do before they start."""
    words = ("migrate", "status", "--wait", "inf")
    with own_postgres(tmp_path / "postgres") as postgres:
        settings = environ(store.url, queue_name, DATABASE_URL=postgres.database_url)
        postgres.stop()
        with command(settings, tmp_path / "status.log", *words) as waiting:
            _until_logged(tmp_path / "status.log", "waiting for the database")
            postgres.start()
            _until_logged(tmp_path / "status.log", "waiting for the migration")
            assert finished(settings, "migrate").returncode == 0
            assert waiting.wait(PATIENCE_SECONDS) == 0
        stranger = re.sub("//[^@/]*@", "//nobody_we_know@", postgres.database_url)
        refused = finished({**settings, "DATABASE_URL": stranger}, *words)

    said = (tmp_path / "status.log").read_text()
    assert said.count("waiting for the database") == said.count("waiting for the migration") == 1
    assert "0001 history" in said
    assert refused.returncode == 5, refused.stderr
    assert "nobody_we_know" in refused.stderr


def _until_logged(log: Path, words: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


@pytest.mark.parametrize("wait", [migrate_when_reachable, missing_when_migrated])
async def test_who_waits_for_a_database_says_once_what_for(wait: Wait) -> None:
    async with Database(f"postgresql://tideq@127.0.0.1:{free_port()}/tideq") as nobody:
        with capture_logs() as logs, pytest.raises(HistoryUnavailable):
            await wait(nobody, 3 * RETRY_SECONDS)

    waited = [each["error"] for each in logs if each["event"] == "waiting for the database"]
    assert len(waited) == 1
    assert "refused" in waited[0]
