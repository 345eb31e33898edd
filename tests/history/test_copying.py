"""COPY's binary format as we write it, read by PostgreSQL."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.history.test_rows import AWKWARD, CLAIM, DOCUMENTS, ID, TEXTS
from tideq.persistence.replication.copying import (
    END,
    NULL,
    SIGNATURE,
    instant_field,
    integer_field,
    row_start,
    text_field,
    uuid_field,
)
from tideq.persistence.replication.rows import Rows

Connection = psycopg.Connection[tuple[Any, ...]]
START = row_start("id, number, at, text")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute("CREATE TEMPORARY TABLE copied (id uuid, number integer, at timestamptz, text text)")
        yield connection


def copy(connection: Connection, *rows: bytes) -> None:
    connection.execute("TRUNCATE copied")
    with connection.cursor() as cursor, cursor.copy("COPY copied FROM STDIN (FORMAT binary)") as sink:
        sink.write(SIGNATURE + b"".join(START + row for row in rows) + END)


@given(
    st.lists(
        st.tuples(st.uuids(), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**42), st.none() | DOCUMENTS | TEXTS),
        max_size=20,
    )
)
@example([(uuid.uuid4(), number, number, text) for number, text in enumerate(AWKWARD)])
@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_arrive_as_they_were(
    connection: Connection, values: list[tuple[uuid.UUID, int, int, str | None]]
) -> None:
    copy(
        connection,
        *(
            uuid_field(str(task_id).encode())
            + integer_field(number)
            + instant_field(at_ms)
            + (NULL if text is None else text_field(text.encode()))
            for task_id, number, at_ms, text in values
        ),
    )

    expected = [(each, number, EPOCH + timedelta(milliseconds=at_ms), text) for each, number, at_ms, text in values]
    assert connection.execute("SELECT * FROM copied ORDER BY ctid").fetchall() == expected


@pytest.mark.parametrize("text", [b"zero\0byte", b"\xff\xfe", b"\xed\xa0\x80"])
def test_what_is_no_text_is_refused(connection: Connection, text: bytes) -> None:
    row = uuid_field(ID) + integer_field(1) + instant_field(1) + text_field(text)

    with pytest.raises(psycopg.DataError):
        copy(connection, row)


@pytest.mark.parametrize("text", [b"", ID[:-1], ID[:-2], ID + b"00", b"g" + ID[1:]])
def test_what_is_no_uuid_is_refused_before_it_garbles_a_row(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"UUID|hexadecimal|length"):
        uuid_field(text)


def test_a_record_with_too_few_fields_is_refused_and_nothing_else() -> None:
    broken = msgspec.structs.replace(CLAIM, packed=CLAIM.packed[:10])

    with pytest.raises(ValueError, match="not enough values"):
        Rows().add([broken])
