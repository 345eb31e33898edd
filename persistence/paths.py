"""Ways into the tasks: for each filter an index whose entries with one key lie in the order of the ids.

The planner is not asked which index to take. For a state that is common in all of history and rare at its end it chose
to read ids backwards until it had a page: 3.6 s at ten million tasks, and 0.3 ms this way. So the way in is written as
a range of rows in the order of its index, which no other index has, and the conditions are kept out of it.
"""

from typing import LiteralString, NamedTuple

from psycopg import sql

from tideq.persistence.filters import TaskFilter
from tideq.queue_core.states import TaskState

WANTED: LiteralString = """
    (%(states)s::text[] IS NULL OR tasks.state = ANY (%(states)s::text[]))
    AND (%(task_type)s::text IS NULL OR tasks.task_type = %(task_type)s)
    AND (%(priority)s::text IS NULL OR tasks.priority = %(priority)s)
    AND (%(worker_id)s::text IS NULL OR tasks.worker_id = %(worker_id)s)
    AND (%(trace_id)s::uuid IS NULL OR tasks.trace_id = %(trace_id)s::uuid)
    AND (%(created_from)s::timestamptz IS NULL OR tasks.created_at >= %(created_from)s)
    AND (%(created_below)s::timestamptz IS NULL OR tasks.created_at < %(created_below)s)
    AND (%(ended_below)s::timestamptz IS NULL OR tasks.ended_at < %(ended_below)s)"""

WANTED_TERMS: LiteralString = """
    AND cardinality(%(terms)s::text[]) = (
        SELECT count(*) FROM task_terms AS other
        WHERE other.term = ANY (%(terms)s::text[]) AND other.task_id = tasks.task_id
    )"""
"""Apart, because a query that can look up terms takes half as long again to start."""

WITHIN: LiteralString = """
    ({columns}{id}) >= ({values}%(first)s::uuid) AND ({columns}{id}) < ({values}%(below)s::uuid)
    AND {id} >= %(first)s::uuid AND {id} < %(below)s::uuid {also}"""
"""The range of ids is given with the key and alone: the one finds the place in an index, the other the partitions."""

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


class Path(NamedTuple):
    """A way in, and the keys to follow."""

    name: str
    keys: tuple[str, ...] = ("",)


class Way(NamedTuple):
    """How a path is written: the columns of its index before the id, what they must equal, and where they are."""

    columns: tuple[LiteralString, ...] = ()
    values: tuple[LiteralString, ...] = ()
    table: LiteralString = "tasks"
    join: LiteralString = ""
    also: LiteralString = ""

    def parts(self, key: LiteralString = "key") -> dict[str, sql.Composable]:
        """What a query over this path fills in; `key` is where a key comes from."""
        id_column = sql.SQL(self.table + ".task_id")
        columns = [*map(sql.SQL, self.columns), id_column]
        return {
            "index": sql.SQL(self.table),
            "source": sql.SQL(self.table + self.join),
            "id": id_column,
            "within": sql.SQL(WITHIN).format(
                id=id_column,
                columns=sql.SQL("").join(sql.SQL(column + ", ") for column in self.columns),
                values=sql.SQL("").join(sql.SQL(value + ", ").format(key=sql.SQL(key)) for value in self.values),
                also=sql.SQL(self.also),
            ),
            "order": sql.SQL(", ").join(sql.SQL("{} DESC").format(column) for column in columns),
        }

    def found(self, wanted: sql.Composable, limit: sql.Composable, *, has_keys: bool) -> sql.Composable:
        """The newest tasks on the path that are wanted, as a table."""
        parts = self.parts("key" if has_keys else "%(key)s::text")
        found = sql.SQL(FOUND).format(**parts, wanted=wanted, limit=limit)
        return sql.SQL(FOUND_FOR_KEYS).format(found=found, limit=limit) if has_keys else found


WAYS: dict[str, Way] = {
    "all": Way(),
    "state": Way(("tasks.state",), ("{key}",)),
    "type": Way(("tasks.task_type",), ("{key}",)),
    "type_and_state": Way(("tasks.task_type", "tasks.state"), ("%(task_type)s", "{key}")),
    "priority": Way(("tasks.priority",), ("{key}",)),
    "worker": Way(("tasks.worker_id",), ("{key}",), also="AND tasks.worker_id IS NOT NULL"),
    "trace": Way(("tasks.trace_id",), ("{key}::uuid",), also="AND tasks.trace_id IS NOT NULL"),
    "term": Way(("task_terms.term",), ("{key}",), table="task_terms", join=TERM_JOIN),
}


def paths(wanted: TaskFilter) -> list[Path]:
    """Every way in that the filter opens."""
    found: list[Path] = []
    if wanted.trace_id is not None:
        found.append(Path("trace", (wanted.trace_id,)))
    found += [Path("term", (term,)) for term in dict.fromkeys(wanted.terms)]
    if wanted.worker_id is not None:
        found.append(Path("worker", (wanted.worker_id,)))
    found += _by_type_and_state(wanted)
    if wanted.priority is not None:
        found.append(Path("priority", (wanted.priority,)))
    return found or [Path("all")]


def _by_type_and_state(wanted: TaskFilter) -> list[Path]:
    """A key for each state; all of them are as good as none."""
    states = tuple(dict.fromkeys(wanted.states))
    states = states if len(states) < len(TaskState) else ()
    if wanted.task_type is not None:
        return [Path("type_and_state", states) if states else Path("type", (wanted.task_type,))]
    return [Path("state", states)] if states else []
