"""Connections to history, as the server sees them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.history.scale import PATIENCE_SECONDS
from tests.history.servers import Server
from tests.stores import free_port
from tideq.api.settings import ServiceSettings
from tideq.cli.checks.history import check_history
from tideq.embedded import PostgresOptions
from tideq.persistence.database import Database, UnsuitableDatabase
from tideq.persistence.schema.migrations import migrate, migrate_when_reachable, missing_migrations
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.settings import QueueSettings, SettingsError


async def test_a_client_whose_machine_vanished_loses_its_locks_soon(tmp_path: Path) -> None:
    """The server must ask for it: a client's own keep-alives tell only the client. Sockets in files need none."""
    port = free_port()
    listening = ("-c", "listen_addresses=127.0.0.1", "-c", f"port={port}", "-c", "fsync=off")
    server = Server(tmp_path / "postgres", valkey=None, postgres=PostgresOptions(flags=listening))
    server.start()
    try:
        async with (
            Database(f"postgresql://tideq@127.0.0.1:{port}/tideq") as database,
            database.session() as connection,
        ):
            names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
            found = await connection.execute("SELECT current_setting(unnest(%s::text[]))", (list(names),))
            idle, interval, count = [int(value) for (value,) in await found.fetchall()]
    finally:
        server.stop()

    assert 0 < idle + interval * count <= 30


async def test_a_connection_that_cannot_be_made_ready_is_closed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the server goes away in between: the pool tries another, and forgets this one as it is."""
    monkeypatch.setattr("tideq.persistence.database.BY_INDEX", "SELECT nothing_like_that()")
    connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True)

    with pytest.raises(psycopg.errors.UndefinedFunction):
        await Database(database_url)._configure_reader(connection)  # pyright: ignore[reportPrivateUsage]

    assert connection.closed


@pytest.fixture
async def ascii_url(database_url: str, queue_name: str) -> AsyncIterator[str]:
    """A database on the same server in which a text is any bytes."""
    name = sql.Identifier(f"ascii_{queue_name}")
    connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True)
    async with connection:
        make = "CREATE DATABASE {} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0"
        await connection.execute(sql.SQL(make).format(name))
        yield make_conninfo(database_url, dbname=f"ascii_{queue_name}")
        await connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


async def test_a_database_of_another_encoding_is_named_before_anything_is_applied(
    ascii_url: str, queue_name: str
) -> None:
    async with Database(ascii_url, queue_name) as database:
        for refused in (migrate(database), migrate_when_reachable(database, 60), missing_migrations(database)):
            with pytest.raises(UnsuitableDatabase, match="encoding is SQL_ASCII and must be UTF8"):
                await asyncio.wait_for(refused, PATIENCE_SECONDS)
    async with await psycopg.AsyncConnection.connect(ascii_url) as connection:
        assert not await (await connection.execute("SELECT FROM pg_namespace WHERE nspname ~ '^tideq'")).fetchall()


async def test_doctor_names_a_database_of_another_encoding(ascii_url: str, queue_name: str) -> None:
    settings = ServiceSettings(
        history=HistorySettings(database_url=ascii_url), queue=QueueSettings(queue_name=queue_name)
    )

    found = [finding async for finding in check_history(settings)]

    assert [(finding.check, finding.status) for finding in found] == [("history", "fail")]
    assert "SQL_ASCII" in found[0].found


async def test_texts_are_sent_as_utf_8_whatever_the_role_would_send(
    database_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are copied as bytes, which the server would read in the encoding of the session."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    async with Database(database_url, queue_name) as database, database.session() as connection:
        assert connection.info.encoding == "utf-8"


@pytest.mark.parametrize("queue_name", ["q" * 58, "é" * 29])
def test_a_queue_whose_schema_name_would_be_cut_is_refused(database_url: str, queue_name: str) -> None:
    with pytest.raises(SettingsError, match=r"TIDEQ_QUEUE: .* 63 bytes"):
        Database(database_url, queue_name)


def test_the_longest_name_of_a_schema_is_whole(database_url: str) -> None:
    assert len(Database(database_url, "q" * 57).schema) == 63
