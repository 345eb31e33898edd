"""Index scans: for each filter an index whose entries of one key are in the order of the ids.

The planner must not choose the index: for a state that is frequent in history and rare lately it scanned ids backwards,
3.6 s at ten million tasks instead of 0.3 ms (docs/history.md). So each scan is written as a range of rows in the order
of its index, which fits no other index, and the filter's conditions stay outside of it.
"""

from collections.abc import Sequence
from typing import LiteralString, NamedTuple

from psycopg import sql

from tideq.persistence.read.filters import TaskFilter
from tideq.queue_core.states import TaskState

CONDITIONS: dict[str, LiteralString] = {
    "states": "tasks.state = ANY (%(states)s::text[])",
    "task_type": "tasks.task_type = %(task_type)s::text",
    "priority": "tasks.priority = %(priority)s::text",
    "worker_id": "tasks.worker_id = %(worker_id)s::text",
    "created_from": "tasks.created_at >= %(created_from)s::timestamptz",
    "created_below": "tasks.created_at < %(created_below)s::timestamptz",
    "ended_below": "tasks.ended_at < %(ended_below)s::timestamptz",
    "terms": """cardinality(%(terms)s::text[]) = (
        SELECT count(*) FROM task_terms AS other
        WHERE other.term = ANY (%(terms)s::text[]) AND other.task_id = tasks.task_id
    )""",
}
"""The conditions of a filter, by parameter name. A query contains only those of its filter: conditions that always hold
take a tenth of a page's time (docs/history.md)."""

WITHIN: LiteralString = """
    ({columns}{id}) >= ({values}%(first)s::uuid) AND ({columns}{id}) < ({values}%(below)s::uuid)
    AND {id} >= %(first)s::uuid AND {id} < %(below)s::uuid {also}"""
"""The range of ids occurs twice: with the key it selects the part of the index, alone it selects the partitions."""

WITH_TERM: LiteralString = """
    task_terms.term = {key} AND {id} >= %(first)s::uuid AND {id} < %(below)s::uuid"""
"""Terms have only one index, so the plain form is safe, and a fifth faster."""

OF_TRACE: LiteralString = """(
    SELECT * FROM tasks WHERE tasks.trace_id = {key}::uuid AND tasks.trace_id IS NOT NULL
    UNION ALL
    SELECT * FROM tasks WHERE tasks.task_id = {key}::uuid AND tasks.trace_id IS NULL
) AS tasks"""
"""A task submitted without a trace uses its own id as trace id, and its column is null."""

OTHER_TERMS: LiteralString = """cardinality(%(terms)s::text[]) = (
        SELECT count(*) FROM task_terms AS other
        WHERE other.term = ANY (%(terms)s::text[]) AND other.task_id = task_terms.task_id
    )"""
"""Keeps the ids of tasks that have all other terms too, before the tasks are fetched."""

TERM_JOIN: LiteralString = """
    CROSS JOIN LATERAL (
        SELECT * FROM tasks
        WHERE tasks.task_id = task_terms.task_id AND tasks.task_id >= %(first)s AND tasks.task_id < %(below)s
        LIMIT 1
    ) AS tasks"""
"""The limit keeps the planner from beginning with the tasks."""

FOUND: LiteralString = """(
    SELECT tasks.*
    FROM (SELECT tasks.* FROM {source} WHERE {within} ORDER BY {order} OFFSET 0) AS tasks
    WHERE {wanted}
    LIMIT {limit}
)"""
"""The offset keeps the planner from moving the conditions into the scan. The rows keep the order of the scan."""

FOUND_FOR_KEYS: LiteralString = """(
    SELECT found.*
    FROM unnest(%(keys)s::text[]) AS key CROSS JOIN LATERAL {found} AS found
    ORDER BY found.task_id DESC
    LIMIT {limit}
)"""
"""For several keys; for one key it would take a quarter longer."""


FOUND_OF_TERM: LiteralString = """(
    SELECT tasks.*
    FROM tasks
    WHERE tasks.task_id = ANY (ARRAY(SELECT {id} FROM {index} WHERE {within} ORDER BY {order} LIMIT {limit}))
        AND tasks.task_id >= %(first)s::uuid AND tasks.task_id < %(below)s::uuid
    ORDER BY tasks.task_id DESC
)"""
"""For a filter that has only a term: it needs no other rows, so its tasks are fetched by one array of ids."""


class IndexScan(NamedTuple):
    """A scan by its name in `INDEX_ORDERS`, and the keys to scan for."""

    name: str
    keys: tuple[str, ...] = ("",)


class IndexOrder(NamedTuple):
    """The SQL of a scan: the columns of its index before the id, the values they must equal, and their table."""

    columns: tuple[LiteralString, ...] = ()
    values: tuple[LiteralString, ...] = ()
    table: LiteralString = "tasks"
    source: LiteralString = ""
    """Replaces the table in FROM."""
    join: LiteralString = ""
    also: LiteralString = ""
    holds: frozenset[str] = frozenset()
    """Names of the conditions that hold for every row of the scan."""
    within: LiteralString = WITHIN

    def parts(self, key: LiteralString = "key") -> dict[str, sql.Composable]:
        """Returns the parts of a query over this scan; `key` is the SQL expression of the key."""
        id_column = sql.SQL(self.table + ".task_id")
        columns = [*map(sql.SQL, self.columns), id_column]
        return {
            "index": sql.SQL(self.table),
            "source": sql.SQL((self.source or self.table) + self.join).format(key=sql.SQL(key)),
            "id": id_column,
            "within": sql.SQL(self.within).format(
                id=id_column,
                columns=sql.SQL("").join(sql.SQL(column + ", ") for column in self.columns),
                values=sql.SQL("").join(sql.SQL(value + ", ").format(key=sql.SQL(key)) for value in self.values),
                key=sql.SQL(key),
                also=sql.SQL(self.also),
            ),
            "order": sql.SQL(", ").join(sql.SQL("{} DESC").format(column) for column in columns),
        }

    def found(self, names: Sequence[str], limit: sql.Composable, *, has_keys: bool) -> sql.Composable:
        """Returns a table expression: the newest tasks of the scan for which the named conditions hold."""
        parts = self.parts("key" if has_keys else "%(key)s::text") | {"limit": limit}
        if self.join and "terms" in names:
            names = [name for name in names if name != "terms"]
            parts["within"] = sql.SQL("{} AND {}").format(parts["within"], sql.SQL(OTHER_TERMS))
        if self.join and not names:
            return sql.SQL(FOUND_OF_TERM).format(**parts)
        found = sql.SQL(FOUND).format(**parts, wanted=condition(names))
        return sql.SQL(FOUND_FOR_KEYS).format(found=found, limit=limit) if has_keys else found


def condition(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(" AND ").join([sql.SQL(CONDITIONS[name]) for name in names] or [sql.SQL("true")])


INDEX_ORDERS: dict[str, IndexOrder] = {
    "all": IndexOrder(),
    "state": IndexOrder(("tasks.state",), ("{key}",), holds=frozenset({"states"})),
    "type": IndexOrder(("tasks.task_type",), ("{key}",), holds=frozenset({"task_type"})),
    "type_and_state": IndexOrder(
        ("tasks.task_type", "tasks.state"), ("%(task_type)s", "{key}"), holds=frozenset({"task_type", "states"})
    ),
    "priority": IndexOrder(("tasks.priority",), ("{key}",), holds=frozenset({"priority"})),
    "worker": IndexOrder(
        ("tasks.worker_id",), ("{key}",), also="AND tasks.worker_id IS NOT NULL", holds=frozenset({"worker_id"})
    ),
    "trace": IndexOrder(source=OF_TRACE),
    "term": IndexOrder(("task_terms.term",), ("{key}",), table="task_terms", join=TERM_JOIN, within=WITH_TERM),
}


def index_scans(wanted: TaskFilter) -> list[IndexScan]:
    """Returns every scan the filter can use. A trace has so few tasks that its scan is the only candidate."""
    if wanted.trace_id is not None:
        return [IndexScan("trace", (wanted.trace_id,))]
    found = [IndexScan("term", (term,)) for term in dict.fromkeys(wanted.terms)]
    if wanted.worker_id is not None:
        found.append(IndexScan("worker", (wanted.worker_id,)))
    found += _by_type_and_state(wanted)
    if wanted.priority is not None:
        found.append(IndexScan("priority", (wanted.priority,)))
    return found or [IndexScan("all")]


def _by_type_and_state(wanted: TaskFilter) -> list[IndexScan]:
    """Returns a scan with a key for each state; a filter of all states is treated as none."""
    states = tuple(dict.fromkeys(wanted.states))
    states = states if len(states) < len(TaskState) else ()
    if wanted.task_type is not None:
        return [IndexScan("type_and_state", states) if states else IndexScan("type", (wanted.task_type,))]
    return [IndexScan("state", states)] if states else []
