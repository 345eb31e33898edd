"""Ways into the tasks: for each filter an index whose entries with one key lie in the order of the ids.

The planner is not asked which index to take. For a state that is common in all of history and rare at its end it chose
to read ids backwards until it had a page: 3.6 s at ten million tasks, and 0.3 ms this way. So the way in is written as
a range of rows in the order of its index, which no other index has, and the conditions are kept out of it.
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
"""What a filter may ask for, by the names of its parameters. Only what it does ask for is written: conditions that hold
for anything take a tenth of a page's time."""

WITHIN: LiteralString = """
    ({columns}{id}) >= ({values}%(first)s::uuid) AND ({columns}{id}) < ({values}%(below)s::uuid)
    AND {id} >= %(first)s::uuid AND {id} < %(below)s::uuid {also}"""
"""The range of ids is given with the key and alone: the one finds the place in an index, the other the partitions."""

WITH_TERM: LiteralString = """
    task_terms.term = {key} AND {id} >= %(first)s::uuid AND {id} < %(below)s::uuid"""
"""Terms have one index, so it can be said plainly: a fifth less of a page's statement."""

OF_TRACE: LiteralString = """(
    SELECT * FROM tasks WHERE tasks.trace_id = {key}::uuid AND tasks.trace_id IS NOT NULL
    UNION ALL
    SELECT * FROM tasks WHERE tasks.task_id = {key}::uuid AND tasks.trace_id IS NULL
) AS tasks"""
"""A task that came without a trace has the digits of its own id for one, and nothing is kept of that."""

OTHER_TERMS: LiteralString = """cardinality(%(terms)s::text[]) = (
        SELECT count(*) FROM task_terms AS other
        WHERE other.term = ANY (%(terms)s::text[]) AND other.task_id = task_terms.task_id
    )"""
"""Of a term's tasks, those that have all others too: asked before a task is fetched."""

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
"""The offset keeps the conditions off the path. What comes out has its order."""

FOUND_FOR_KEYS: LiteralString = """(
    SELECT found.*
    FROM unnest(%(keys)s::text[]) AS key CROSS JOIN LATERAL {found} AS found
    ORDER BY found.task_id DESC
    LIMIT {limit}
)"""
"""For several keys at once; for one it would take a quarter longer."""


FOUND_OF_TERM: LiteralString = """(
    SELECT tasks.*
    FROM tasks
    WHERE tasks.task_id = ANY (ARRAY(SELECT {id} FROM {index} WHERE {within} ORDER BY {order} LIMIT {limit}))
        AND tasks.task_id >= %(first)s::uuid AND tasks.task_id < %(below)s::uuid
    ORDER BY tasks.task_id DESC
)"""
"""Where a term is all that is asked for: it has as many tasks as rows, and they can be fetched in one go."""


class IndexScan(NamedTuple):
    """A way in, and the keys to follow."""

    name: str
    keys: tuple[str, ...] = ("",)


class IndexOrder(NamedTuple):
    """How a path is written: the columns of its index before the id, what they must equal, and where they are."""

    columns: tuple[LiteralString, ...] = ()
    values: tuple[LiteralString, ...] = ()
    table: LiteralString = "tasks"
    source: LiteralString = ""
    """Where it is not the table."""
    join: LiteralString = ""
    also: LiteralString = ""
    holds: frozenset[str] = frozenset()
    """Names of the conditions that hold for whatever lies on the path."""
    within: LiteralString = WITHIN

    def parts(self, key: LiteralString = "key") -> dict[str, sql.Composable]:
        """What a query over this path fills in; `key` is where a key comes from."""
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
        """The newest tasks on the path for which the named conditions hold, as a table."""
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


WAYS: dict[str, IndexOrder] = {
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


def paths(wanted: TaskFilter) -> list[IndexScan]:
    """Every way in that the filter opens; a trace has so few tasks that no other need be looked at."""
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
    """A key for each state; all of them are as good as none."""
    states = tuple(dict.fromkeys(wanted.states))
    states = states if len(states) < len(TaskState) else ()
    if wanted.task_type is not None:
        return [IndexScan("type_and_state", states) if states else IndexScan("type", (wanted.task_type,))]
    return [IndexScan("state", states)] if states else []
