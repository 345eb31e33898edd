"""A filter, followed along one path: which one, and the queries over it."""

import functools
import time
from collections.abc import Iterable, Iterator
from typing import Any, LiteralString, NamedTuple, cast

from psycopg import sql

from tideq.persistence.database import Connection
from tideq.persistence.read.filters import IdRange, TaskFilter
from tideq.persistence.read.index_scan import CONDITIONS, WAYS, IndexScan, condition, paths
from tideq.persistence.read.sql import compose
from tideq.persistence.schema.partitions import id_at, instant_of
from tideq.persistence.settings import DAY_MS

COMPARED_COUNT = 200
FIRST_SPAN_MS = 7 * DAY_MS
LAST_SPAN_MS = 10 * 365 * DAY_MS
SPAN_SECONDS = 1.0
REACH: LiteralString = "(SELECT {id} FROM {index} WHERE {within} ORDER BY {order} OFFSET {limit} LIMIT 1)"
REACH_OF_KEYS: LiteralString = """(
    SELECT found.task_id
    FROM unnest(%(keys{number})s::text[]) AS key
    CROSS JOIN LATERAL (
        SELECT {id} AS task_id FROM {index} WHERE {within} ORDER BY {order} OFFSET {limit} LIMIT 1
    ) AS found
    ORDER BY found.task_id DESC
    LIMIT 1
)"""
"""How far back the first so many tasks on a path reach: an id, or nothing where there are not that many."""


class Search(NamedTuple):
    wanted: TaskFilter
    path: IndexScan

    async def ask(
        self, connection: Connection, query: str, ids: IdRange, limit: int, **more: Any
    ) -> list[tuple[Any, ...]]:
        """Prepared at once: planning for every partition takes longer than reading a page."""
        parameters = self.wanted.parameters() | _keys(self.path) | ids._asdict() | more
        if self.path.name == "term":
            parameters["terms"] = [term for term in parameters["terms"] if term not in self.path.keys]
        names = tuple(name for name in CONDITIONS if parameters[name] and name not in WAYS[self.path.name].holds)
        text = _written(query, self.path.name, limit, names, len(self.path.keys) > 1)
        return await (await connection.execute(text, parameters, prepare=True)).fetchall()


async def begin_search(connection: Connection, wanted: TaskFilter, ids: IdRange) -> Search:
    """Along the path on which the next tasks reach back furthest: there the fewest must be looked at."""
    ways = paths(wanted)
    if len(ways) == 1:
        return Search(wanted, ways[0])
    numbered = {f"{kind}{number}": value for number, path in enumerate(ways) for kind, value in _keys(path).items()}
    parameters = wanted.parameters() | numbered | ids._asdict()
    text = _comparison(tuple((path.name, len(path.keys) > 1) for path in ways))
    ((reaches,),) = await (await connection.execute(text, parameters, prepare=True)).fetchall()
    found = [reach.int if reach else 0 for reach in reaches]
    return Search(wanted, ways[found.index(min(found))])


def _keys(path: IndexScan) -> dict[str, Any]:
    return {"key": path.keys[0], "keys": list(path.keys)}


def spans_of(wanted: TaskFilter, ids: IdRange) -> Iterable[IdRange]:
    """The parts of a range to ask for one after the other.

    A trace hardly ever fills a page: looking for more of it piece by piece would be in vain.
    """
    return [ids] if wanted.trace_id is not None else spans(ids)


def spans(ids: IdRange) -> Iterator[IdRange]:
    """A range in parts, the newest first: most pages are found there, and looking there opens few partitions.

    The next part is as much longer as the last one was quicker than a second: what is rare is found in two or three.
    One of many years goes back to the beginning: what lies before it has only ids that somebody made up.
    """
    below, span_ms = ids.below, FIRST_SPAN_MS
    while below > ids.first:
        started = time.monotonic()
        newest_ms = min(instant_of(below), time.time_ns() // 1_000_000)
        first = max(ids.first, id_at(newest_ms - span_ms)) if span_ms < LAST_SPAN_MS else ids.first
        yield IdRange(first, below)
        below = first
        span_ms = round(span_ms * max(SPAN_SECONDS / (time.monotonic() - started + 0.001), 1))


@functools.cache
def _written(query: str, path: str, limit: int, names: tuple[str, ...], has_keys: bool) -> LiteralString:
    way, most = WAYS[path], sql.Literal(limit)
    found = way.found(names, most, has_keys=has_keys)
    return compose(query, **way.parts(), wanted=condition(names), limit=most, found=found)


@functools.cache
def _comparison(ways: tuple[tuple[str, bool], ...]) -> LiteralString:
    """All paths in one statement: each takes its way name and whether it has several keys."""
    reaches = [_reach(number, *way) for number, way in enumerate(ways)]
    return compose("compare_paths", reaches=sql.SQL(", ").join(reaches))


def _reach(number: int, name: str, has_keys: bool) -> sql.Composable:
    number_text = sql.SQL(cast("LiteralString", str(number)))
    template = REACH_OF_KEYS if has_keys else REACH
    parts = WAYS[name].parts("key" if has_keys else cast("LiteralString", f"%(key{number})s::text"))
    return sql.SQL(template).format(**parts, number=number_text, limit=sql.Literal(COMPARED_COUNT))
