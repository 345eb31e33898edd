"""SQL templates: queries with parts that cannot be parameters, such as columns, orders and limits."""

from typing import LiteralString, cast

from psycopg import sql

from tideq.persistence.database import statement


def compose(name: str, **parts: sql.Composable) -> LiteralString:
    """Returns `queries/<name>.sql` with its parts filled in, without its comment, which names them too."""
    lines = [line for line in statement(name).splitlines() if not line.startswith("--")]
    query = sql.SQL(cast("LiteralString", "\n".join(lines)))
    return cast("LiteralString", query.format(**parts).as_string(None))
