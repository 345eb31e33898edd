"""Reading plans: every statement a reader runs is also explained, as the server would really run it."""

import contextlib
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString, cast

from psycopg import sql

from tideq.persistence.database import Connection, Database

Node = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    root: Node
    parameters: Mapping[str, Any]

    def nodes(self) -> Iterator[Node]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])

    def scans(self) -> Iterator[Node]:
        return (node for node in self.nodes() if "Relation Name" in node)

    def rows_read(self) -> int:
        """Of tables, those included that a filter then dropped."""
        return sum(_rows(node) + _removed(node) for node in self.scans())

    def rows_sorted(self) -> int:
        return max(
            (_rows(child) for node in self.nodes() if "Sort" in node["Node Type"] for child in node["Plans"]), default=0
        )

    def partitions_opened(self) -> set[str]:
        return {node["Relation Name"] for node in self.scans()}


class ExplainedDatabase(Database):
    """What its readers do is done twice: once for them, once to see how."""

    def __init__(self, url: str, queue_name: str) -> None:
        super().__init__(url, queue_name)
        self.plans: list[Plan] = []

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncGenerator[Connection]:
        async with super().reading() as connection:
            yield cast("Connection", _Explaining(connection, self.plans))


class _Explaining:
    def __init__(self, connection: Connection, plans: list[Plan]) -> None:
        self._connection = connection
        self._plans = plans

    async def execute(self, query: LiteralString, parameters: Any = None, **options: Any) -> Any:
        known: Any = parameters
        if isinstance(parameters, dict):
            self._plans.append(Plan(await _explained(self._connection, query, known), known))
        return await self._connection.execute(query, known, **options)


async def _explained(connection: Connection, query: str, parameters: Mapping[str, Any]) -> Node:
    """As a prepared statement, because it is one: explaining a query with its values at hand plans for those."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", query)))
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", query).rstrip().rstrip(";")
    values = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in names)
    await connection.execute(cast("LiteralString", f"PREPARE explained AS {numbered}"))
    explain = sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE explained ({})").format(values)
    row = await (await connection.execute(explain)).fetchone()
    await connection.execute("DEALLOCATE explained")
    assert row
    return row[0][0]["Plan"]


def _rows(node: Node) -> int:
    return round(node["Actual Rows"] * node["Actual Loops"])


def _removed(node: Node) -> int:
    return round(node.get("Rows Removed by Filter", 0) * node["Actual Loops"])
