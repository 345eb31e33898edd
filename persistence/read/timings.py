"""Wait and run times of the newest completed tasks: a sample of bounded size, so its cost is bounded."""

from typing import NamedTuple

from tideq.persistence.database import Database, statement
from tideq.persistence.definitions import packed_record
from tideq.persistence.schema.partitions import id_at
from tideq.queue_core.scripts.record import readable_record

MAX_SAMPLE = 1_000


class Timing(NamedTuple):
    """Of a task's last attempt; the wait begins when the task became eligible."""

    ended_ms: int
    wait_ms: int
    run_ms: int


class Timings:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def since(self, created_from_ms: int) -> list[Timing]:
        """Returns the timings of tasks created at the instant or later, the newest first, at most MAX_SAMPLE."""
        async with self._database.reading() as connection:
            found = await connection.execute(
                statement("recent_records"), (id_at(created_from_ms), MAX_SAMPLE), prepare=True
            )
            rows = await found.fetchall()
        return [timing for (record,) in rows if (timing := _timing(record))]


def _timing(text: str) -> Timing | None:
    """Returns None for retries: the wait of a later attempt includes executions and backoffs."""
    record = readable_record(packed_record(text))
    if record is None:
        return None
    assigned, started, ended = (record.instant(f"{name}_ms") for name in ("assigned", "started", "ended"))
    if assigned is None or started is None or ended is None or record.number("attempt") != 1:
        return None
    eligible = record.instant("eligible_ms") or record.instant("queued_ms") or record.number("created_ms")
    return Timing(ended, max(assigned - eligible, 0), max(ended - started, 0))
