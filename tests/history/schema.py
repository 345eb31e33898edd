"""What the migrations add up to: `make schema` writes it to persistence/schema.sql, a test compares the two.

Written by the bundled pg_dump; compared by what PostgreSQL's catalogue says, so that no version's layout matters.
"""

import asyncio
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, LiteralString

from tideq.embedded import EmbeddedStores, PostgresOptions
from tideq.embedded.postgres import find_bin_dir
from tideq.persistence.database import Database
from tideq.persistence.schema.migrations import migrate

SCHEMA = Path(__file__).parents[2] / "persistence" / "schema.sql"
HEAD = """-- What the migrations add up to, written by `make schema`: to be read, not run. A test keeps it true.
-- Partitions for spans of time are made beside these by `tideq migrate`, `tideq prune` and the monitor.

"""
NOISE = re.compile(r"(SET |SELECT pg_catalog|CREATE SCHEMA|ALTER SCHEMA|\\)")
CATALOGUE: dict[str, LiteralString] = {
    "columns": """
        SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, attidentity,
            pg_get_expr(adbin, adrelid)
        FROM pg_class
        JOIN pg_attribute ON attrelid = pg_class.oid
        LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
        WHERE relnamespace = %(schema)s::regnamespace AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
        ORDER BY relname, attnum""",
    "constraints": """
        SELECT relname, conname, pg_get_constraintdef(pg_constraint.oid)
        FROM pg_constraint JOIN pg_class ON conrelid = pg_class.oid
        WHERE connamespace = %(schema)s::regnamespace AND contype <> 'n'
        ORDER BY 1, 2""",
    "indexes": """
        SELECT tablename, indexname, replace(indexdef, %(schema)s || '.', '')
        FROM pg_indexes WHERE schemaname = %(schema)s ORDER BY 1, 2""",
    "partitions": """
        SELECT relname, pg_get_partkeydef(oid), pg_get_expr(relpartbound, oid)
        FROM pg_class WHERE relnamespace = %(schema)s::regnamespace AND relkind IN ('r', 'p') ORDER BY 1""",
}


async def described(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Everything a schema consists of."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    async with database.session() as connection:
        for name, query in CATALOGUE.items():
            found[name] = await (await connection.execute(query, {"schema": database.schema})).fetchall()
    return found


def dumped(database_url: str, schema: str) -> str:
    """As statements, without what belongs to this server or session."""
    program = find_bin_dir(None, Path(os.devnull)) / "pg_dump"
    options = ("--schema-only", "--no-owner", "--no-privileges", f"--schema={schema}", database_url)
    answer = subprocess.run([program, *options], capture_output=True, text=True, check=True)
    kept = [line for line in answer.stdout.splitlines() if not line.startswith("--") and not NOISE.match(line)]
    text = re.sub(r"CONSTRAINT \w+ NOT NULL", "NOT NULL", "\n".join(kept).replace(f"{schema}.", ""))
    return HEAD + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


async def _migrated(database_url: str) -> str:
    async with Database(database_url) as database:
        await migrate(database)
        return database.schema


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedStores(Path(folder) / "stores", valkey=None, postgres=PostgresOptions()) as stores,
    ):
        schema = asyncio.run(_migrated(stores.database_url))
        SCHEMA.write_text(dumped(stores.database_url, schema))


if __name__ == "__main__":
    main()
