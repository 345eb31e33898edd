"""A history to list: many finished tasks over eight weeks, made by PostgreSQL itself and written into the real tables.

Most are completed, of four types and three priorities; two in a hundred have an error, one in four has tags, half have
a trace. What still lives is at the end. No events: listing does not read them.
"""

import asyncio
import sys
import time
from typing import LiteralString, NamedTuple

from psycopg import sql

from bench.history.stores import Stores
from tideq.persistence.database import Connection
from tideq.persistence.settings import DAY_MS
from tideq.queue_core.scripts.record import NAMES

WEEKS = 8
WEEK_MS = 7 * DAY_MS
WORKERS, CODES = 50, 100
ROWS_A_CUSTOMER, ROWS_A_WIDTH = 5_000, 20_000
"""So many tasks for one more value: what is rare is as rare an hour in a small history as in one of ten million."""
BLOCK = 100_000

RECORD: dict[str, LiteralString] = {
    "state": "state",
    "version": "'3'",
    "lane": "'0'",
    "age_bucket": "priority || ':29000000'",
    "timeout_ms": "'600000'",
    "attempt": "'1'",
    "lease": "'1-5302261fcd8c14af49ea30b5454f5dc2-7'",
    "worker": "worker_id",
    "assigned_ms": "ms + 900",
    "started_ms": "ms + 1000",
    "ended_ms": "ms + 5000",
    "rank": "ms",
    "max_retries": "'3'",
    "retries": "'0'",
    "losses": "'0'",
    "deliveries": "'0'",
    "created_ms": "ms",
}
DRAWN: LiteralString = """
    SELECT
        (lpad(to_hex(ms), 12, '0') || '7' || substr(noise, 1, 3) || '8' || substr(noise, 4, 15))::uuid AS task_id, ms,
        CASE WHEN number > %(live_from)s THEN (CASE WHEN a < 0.1 THEN 'executing' ELSE 'queued' END)
            WHEN a < 0.013 THEN 'failed' WHEN a < 0.02 THEN 'dead_letter' WHEN a < 0.04 THEN 'cancelled'
            ELSE 'completed' END AS state,
        CASE WHEN b < 0.7 THEN 'resize' WHEN b < 0.9 THEN 'crawl' WHEN b < 0.999 THEN 'mail' ELSE 'rare' END
            AS task_type,
        CASE WHEN c < 0.05 THEN 'high' WHEN c < 0.95 THEN 'medium' ELSE 'low' END AS priority,
        'w' || floor(d * %(workers)s)::int AS worker_id,
        CASE WHEN e < 0.5 THEN noise::uuid END AS trace_id,
        CASE WHEN f < 0.25 THEN floor(f * 4 * %(customers)s)::int END AS customer,
        floor(g * %(widths)s)::int AS width, floor(h * %(codes)s)::int AS code
    FROM (
        SELECT number, %(start_ms)s + number * %(span_ms)s / %(count)s AS ms, md5(number::text) AS noise,
            random() AS a, random() AS b, random() AS c, random() AS d, random() AS e, random() AS f, random() AS g,
            random() AS h
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number
    ) AS numbers"""
WRITE: LiteralString = """
    WITH drawn AS MATERIALIZED ({drawn}), written AS (
        INSERT INTO tasks (task_id, epoch, version, state, reason, task_type, priority, worker_id, trace_id,
            created_at, ended_at, parameters, attributes, record, result, error)
        SELECT task_id, 1, 3, state, 'submitted', task_type, priority,
            CASE WHEN state <> 'queued' THEN worker_id END, trace_id, to_timestamp(ms / 1000.0),
            CASE WHEN state NOT IN ('queued', 'executing') THEN to_timestamp((ms + 5000) / 1000.0) END,
            '{{"width":' || width || ',"url":"https://images.example/' || repeat('x', 50) || '"}}',
            CASE WHEN customer IS NULL THEN '{{}}'
                ELSE '{{"tags":{{"env":"production","customer":"c' || customer || '"}}}}' END,
            {record},
            CASE WHEN state = 'completed' THEN '{{"ok":true}}' END,
            CASE WHEN state IN ('failed', 'dead_letter')
                THEN '{{"message":"upstream timed out","code":"E' || code || '"}}' END
        FROM drawn
    )
    INSERT INTO task_terms (term, task_id)
    SELECT term, task_id FROM drawn CROSS JOIN LATERAL (VALUES
        (CASE WHEN customer IS NOT NULL THEN 'tag:env=production' END),
        (CASE WHEN customer IS NOT NULL THEN 'tag:customer=c' || customer END),
        (CASE WHEN task_type = 'mail' THEN 'parameter:mail.width=' || width END),
        (CASE WHEN state IN ('failed', 'dead_letter') THEN 'error:upstream' END),
        (CASE WHEN state IN ('failed', 'dead_letter') THEN 'error:timed' END),
        (CASE WHEN state IN ('failed', 'dead_letter') THEN 'error:out' END),
        (CASE WHEN state IN ('failed', 'dead_letter') THEN 'error:e' || code END)
    ) AS terms (term) WHERE term IS NOT NULL"""


class Span(NamedTuple):
    start_ms: int
    end_ms: int
    customers: int
    widths: int


async def populate(stores: Stores, count: int) -> Span:
    """Into weeks that have their partitions already. About 30 µs of PostgreSQL a row."""
    end_ms = time.time_ns() // 1_000_000
    values = (max(count // ROWS_A_CUSTOMER, 1), max(count // ROWS_A_WIDTH, 1))
    span = Span(end_ms - WEEKS * WEEK_MS, end_ms, *values)
    middle = count // 2
    progress = Progress(count)
    await asyncio.gather(
        _write_all(stores, span, range(middle), progress), _write_all(stores, span, range(middle, count), progress)
    )
    async with stores.database.session() as connection:
        await connection.execute("VACUUM (ANALYZE) tasks, task_terms")
    progress.end()
    return span


class Progress:
    """On standard error: ten million rows take minutes."""

    def __init__(self, total: int) -> None:
        self.total, self._done, self._began = total, 0, time.perf_counter()

    def add(self, rows: int) -> None:
        self._done += rows
        sys.stderr.write(f"\r  {self._done:_} of {self.total:_} rows, {time.perf_counter() - self._began:.0f} s")

    def end(self) -> None:
        sys.stderr.write(f"\n  vacuumed after {time.perf_counter() - self._began:.0f} s\n")


async def _write_all(stores: Stores, span: Span, numbers: range, progress: Progress) -> None:
    async with stores.database.session() as connection:
        await connection.execute("SET synchronous_commit = off")
        for first in range(numbers.start, numbers.stop, BLOCK):
            rows = min(BLOCK, numbers.stop - first)
            await _write(connection, span, first, first + rows - 1, progress.total)
            progress.add(rows)


async def _write(connection: Connection, span: Span, first: int, last: int, count: int) -> None:
    draw = {
        "start_ms": span.start_ms, "span_ms": span.end_ms - span.start_ms, "count": count, "first": first,
        "last": last, "live_from": count - count // 500, "workers": WORKERS, "customers": span.customers,
        "widths": span.widths, "codes": CODES,
    }  # fmt: skip
    query = sql.SQL(WRITE).format(drawn=sql.SQL(DRAWN), record=_record())
    await connection.execute(query, draw)


def _record() -> sql.Composed:
    """As the store's records lie in history: a unit separator after each field."""
    values = [sql.SQL(RECORD.get(name, "''")) for name in NAMES]
    return sql.SQL("concat({}, chr(31))").format(sql.SQL(", chr(31), ").join(values))
