"""A filter, followed along one path: which one, and the queries over it."""

import functools
import time
from collections.abc import Iterable, Iterator
from typing import Any, LiteralString, NamedTuple

from psycopg import sql

from tideq.persistence.database import Connection
from tideq.persistence.reading.composing import composed
from tideq.persistence.reading.filters import IdRange, TaskFilter
from tideq.persistence.reading.paths import CONDITIONS, WAYS, Path, condition, paths
from tideq.persistence.schema.partitions import id_at, instant_of
from tideq.persistence.settings import DAY_MS

COMPARED_COUNT = 500
FIRST_SPAN_MS = 7 * DAY_MS
LAST_SPAN_MS = 10 * 365 * DAY_MS
SPAN_SECONDS = 1.0


class Search(NamedTuple):
    wanted: TaskFilter
    path: Path

    async def ask(
        self, connection: Connection, query: str, ids: IdRange, limit: int, **more: Any
    ) -> list[tuple[Any, ...]]:
        """Prepared at once: planning for every partition takes longer than reading a page."""
        keys = {"key": self.path.keys[0], "keys": list(self.path.keys)}
        parameters = self.wanted.parameters() | keys | ids._asdict() | more
        if self.path.name == "term":
            parameters["terms"] = [term for term in parameters["terms"] if term not in self.path.keys]
        names = tuple(name for name in CONDITIONS if parameters[name] and name not in WAYS[self.path.name].holds)
        text = _written(query, self.path.name, limit, names, len(self.path.keys) > 1)
        return await (await connection.execute(text, parameters, prepare=True)).fetchall()

    def spans(self, ids: IdRange) -> Iterable[IdRange]:
        """The parts of a range to ask for one after the other."""
        return [ids] if WAYS[self.path.name].is_short else spans(ids)


async def begin_search(connection: Connection, wanted: TaskFilter, ids: IdRange) -> Search:
    """Along the path on which the next tasks reach back furthest: there the fewest must be looked at."""
    searches = [Search(wanted, path) for path in paths(wanted)]
    if len(searches) == 1:
        return searches[0]
    reaches: list[int] = []
    for search in searches:
        found = await search.ask(connection, "nth_task", ids, COMPARED_COUNT)
        reaches.append(found[0][0].int if found else 0)
    return searches[reaches.index(min(reaches))]


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
    return composed(query, **way.parts(), wanted=condition(names), limit=most, found=found)
