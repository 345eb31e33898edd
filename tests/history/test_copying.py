"""Rows as we copy them in COPY's binary format, read by PostgreSQL."""

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.history.test_rows import AWKWARD, CLAIM, DOCUMENTS, ID, TEXTS
from tideq.persistence.database import Connection
from tideq.persistence.replication.rows import CopyTarget, Row, Rows, instant, uuid_bytes
from tideq.persistence.replication.writer import copy_rows

COPIED = CopyTarget("copied", "task_id, version, at, error")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    connection = await psycopg.AsyncConnection.connect(database_url, autocommit=True, client_encoding="UTF8")
    async with connection:
        await connection.execute("SET timezone = 'UTC'")
        await connection.execute(
            "CREATE TEMPORARY TABLE copied (task_id uuid, version integer, at timestamptz, error text)"
        )
        yield connection


async def copied(connection: Connection, rows: list[Row]) -> list[Row]:
    await connection.execute("TRUNCATE copied")
    await copy_rows(connection, COPIED, rows)
    return await (await connection.execute("SELECT * FROM copied ORDER BY ctid")).fetchall()


@given(
    values=st.lists(
        st.tuples(st.uuids(), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**47), st.none() | DOCUMENTS | TEXTS),
        max_size=20,
    )
)
@example(values=[(uuid.uuid4(), number, number, text) for number, text in enumerate(AWKWARD)])
@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
async def test_values_arrive_as_they_were(
    connection: Connection, values: list[tuple[uuid.UUID, int, int, str | None]]
) -> None:
    found = await copied(
        connection,
        [
            (uuid_bytes(str(task_id).encode()), number, instant(b"%d" % at_ms), None if text is None else text.encode())
            for task_id, number, at_ms, text in values
        ],
    )

    assert found == [
        (each, number, EPOCH + timedelta(milliseconds=at_ms), text) for each, number, at_ms, text in values
    ]


@pytest.mark.parametrize("text", [b"zero\0byte", b"\xff\xfe", b"\xed\xa0\x80"])
async def test_what_is_no_text_is_refused(connection: Connection, text: bytes) -> None:
    with pytest.raises(psycopg.DataError):
        await copied(connection, [(uuid_bytes(ID), 1, EPOCH, text)])


@pytest.mark.parametrize("text", [b"", ID[:-1], ID[:-2], ID + b"00", b"g" + ID[1:]])
def test_what_is_no_uuid_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"UUID|hexadecimal|length"):
        uuid_bytes(text)


def test_a_record_with_too_few_fields_is_refused_and_nothing_else() -> None:
    broken = msgspec.structs.replace(CLAIM, packed=CLAIM.packed[:10])

    with pytest.raises(ValueError, match="whole fields"):
        Rows().add([broken])


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**32 + 2, 2**70])
def test_a_number_that_a_column_cannot_hold_is_refused(number: int) -> None:
    too_large = msgspec.structs.replace(CLAIM, packed=CLAIM.packed.replace(b"\x002\0", b"\0%d\0" % number, 1))

    with pytest.raises(ValueError, match="integer"):
        Rows().add([too_large])
