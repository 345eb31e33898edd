"""Connections to history, as the server sees them."""

from pathlib import Path

import psycopg
import pytest

from tests.history.servers import Server
from tests.stores import free_port
from tideq.embedded import PostgresOptions
from tideq.persistence.database import Database


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
