"""Search: chooses the index scan of a filter, and runs queries over it."""

import functools
import time
from collections.abc import Iterable, Iterator
from typing import Any, LiteralString, NamedTuple, cast

from psycopg import sql

from tideq.persistence.database import Connection, compose
from tideq.persistence.read.filters import IdRange, TaskFilter
from tideq.persistence.read.index_scan import CONDITIONS, INDEX_ORDERS, IndexScan, condition, index_scans
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
"""The id of the COMPARED_COUNT-th newest task of a scan, or null if the scan has fewer."""


class Search(NamedTuple):
    wanted: TaskFilter
    scan: IndexScan

    async def run(
        self, connection: Connection, query: str, ids: IdRange, limit: int, **more: Any
    ) -> list[tuple[Any, ...]]:
        """Returns the rows of a query over the scan. Prepared at once: planning takes longer than reading a page."""
        parameters = self.wanted.parameters() | _keys(self.scan) | ids._asdict() | more
        if self.scan.name == "term":
            parameters["terms"] = [term for term in parameters["terms"] if term not in self.scan.keys]
        names = tuple(
            name for name in CONDITIONS if parameters[name] and name not in INDEX_ORDERS[self.scan.name].holds
        )
        text = _query_text(query, self.scan.name, limit, names, len(self.scan.keys) > 1)
        return await (await connection.execute(text, parameters, prepare=True)).fetchall()


async def plan_search(connection: Connection, wanted: TaskFilter, ids: IdRange) -> Search:
    """Returns a search along the scan whose next tasks reach back furthest: there the fewest rows must be read."""
    scans = index_scans(wanted)
    if len(scans) == 1:
        return Search(wanted, scans[0])
    numbered = {f"{kind}{number}": value for number, scan in enumerate(scans) for kind, value in _keys(scan).items()}
    parameters = wanted.parameters() | numbered | ids._asdict()
    text = _comparison_text(tuple((scan.name, len(scan.keys) > 1) for scan in scans))
    ((reaches,),) = await (await connection.execute(text, parameters, prepare=True)).fetchall()
    found = [reach.int if reach else 0 for reach in reaches]
    return Search(wanted, scans[found.index(min(found))])


def _keys(scan: IndexScan) -> dict[str, Any]:
    return {"key": scan.keys[0], "keys": list(scan.keys)}


def spans_of(wanted: TaskFilter, ids: IdRange) -> Iterable[IdRange]:
    """Returns the parts of a range to search in turn. A trace is one part: it rarely fills a page."""
    return [ids] if wanted.trace_id is not None else spans(ids)


def spans(ids: IdRange) -> Iterator[IdRange]:
    """Yields a range in parts, the newest first: most pages are found there, in few partitions.

    Each part is longer by the factor that the last one took less than SPAN_SECONDS, so rare tasks are found in two or
    three parts. A part of more than ten years extends to the beginning: older ids can only be chosen ones.
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
def _query_text(query: str, name: str, limit: int, names: tuple[str, ...], has_keys: bool) -> LiteralString:
    order, limit_sql = INDEX_ORDERS[name], sql.Literal(limit)
    found = order.found(names, limit_sql, has_keys=has_keys)
    return compose(query, **order.parts(), wanted=condition(names), limit=limit_sql, found=found)


@functools.cache
def _comparison_text(scans: tuple[tuple[str, bool], ...]) -> LiteralString:
    """Compares all scans in one statement; each is given by its name and whether it has several keys."""
    reaches = [_reach(number, *scan) for number, scan in enumerate(scans)]
    return compose("compare_scans", reaches=sql.SQL(", ").join(reaches))


def _reach(number: int, name: str, has_keys: bool) -> sql.Composable:
    number_text = sql.SQL(cast("LiteralString", str(number)))
    template = REACH_OF_KEYS if has_keys else REACH
    parts = INDEX_ORDERS[name].parts("key" if has_keys else cast("LiteralString", f"%(key{number})s::text"))
    return sql.SQL(template).format(**parts, number=number_text, limit=sql.Literal(COMPARED_COUNT))
