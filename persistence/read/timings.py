"""How long the newest completed tasks waited and ran: a sample, so that looking costs the same whatever happened."""

from typing import NamedTuple

from tideq.persistence.database import Database, statement
from tideq.persistence.definitions import packed_record
from tideq.persistence.schema.partitions import id_at
from tideq.queue_core.scripts.record import readable_record

MAX_SAMPLE = 1_000


class Timing(NamedTuple):
    """Of a task's last attempt; it waited from when it could first have run."""

    ended_ms: int
    wait_ms: int
    run_ms: int


class Timings:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def since(self, created_from_ms: int) -> list[Timing]:
        """Of tasks created then or later, the newest first."""
        async with self._database.reading() as connection:
            found = await connection.execute(
                statement("recent_records"), (id_at(created_from_ms), MAX_SAMPLE), prepare=True
            )
            rows = await found.fetchall()
        return [timing for (record,) in rows if (timing := _timing(record))]


def _timing(text: str) -> Timing | None:
    """Only a first attempt's wait is one in the queue: between attempts lie executions and delays."""
    record = readable_record(packed_record(text))
    if record is None:
        return None
    assigned, started, ended = (record.instant(f"{name}_ms") for name in ("assigned", "started", "ended"))
    if assigned is None or started is None or ended is None or record.number("attempt") != 1:
        return None
    eligible = record.instant("eligible_ms") or record.instant("queued_ms") or record.number("created_ms")
    return Timing(ended, max(assigned - eligible, 0), max(ended - started, 0))
