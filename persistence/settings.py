"""What history must know: where it is, how long it lasts, what it can be searched by."""

import msgspec

from tideq.queue_core.names import NAME
from tideq.queue_core.settings import Setting

DAY_MS = 86_400_000


class HistorySettings(msgspec.Struct, frozen=True):
    database_url: str = ""
    """Empty for none: then finished tasks are forgotten after their time, and nothing can be rebuilt."""
    retention_ms: int = 90 * DAY_MS
    partition_ms: int = 7 * DAY_MS
    """How much time a partition holds. A query without a time range opens every partition there is."""
    searchable: dict[str, tuple[str, ...]] = {}
    """Parameters that tasks of a type can be found by."""
    linger_ms: int = 100
    """How long a replicator lets events gather before it writes them; 0 for not at all. Who asks need not wait."""


def _days(text: str) -> int:
    days = float(text)
    if not 0 < days < 36_500:
        raise ValueError("must be a positive number of days")
    return round(days * DAY_MS)


def _linger_ms(text: str) -> int:
    linger_ms = int(text)
    if not 0 <= linger_ms <= 60_000:
        raise ValueError("must be milliseconds, a minute at most")
    return linger_ms


def _searchable(text: str) -> dict[str, tuple[str, ...]]:
    """`task_type:parameter`, comma-separated."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        task_type, colon, parameter = entry.partition(":")
        if not (NAME.fullmatch(task_type) and colon and parameter):
            raise ValueError(f"{entry!r} is not task_type:parameter")
        found[task_type] = (*found.get(task_type, ()), parameter)
    return found


HISTORY_SETTINGS: dict[str, Setting] = {
    "DATABASE_URL": Setting("history", "database_url", str),
    "TIDEQ_HISTORY_RETENTION_DAYS": Setting("history", "retention_ms", _days),
    "TIDEQ_HISTORY_PARTITION_DAYS": Setting("history", "partition_ms", _days),
    "TIDEQ_REPLICATION_LINGER_MS": Setting("history", "linger_ms", _linger_ms),
    "TIDEQ_SEARCHABLE_PARAMETERS": Setting("history", "searchable", _searchable),
}
