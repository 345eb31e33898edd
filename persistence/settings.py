"""Settings of history: its database, retention, searchable parameters and replication delay."""

import msgspec

from tideq.queue_core.name_rules import NAME
from tideq.queue_core.settings import Setting

DAY_MS = 86_400_000


class HistorySettings(msgspec.Struct, frozen=True):
    database_url: str = ""
    """Empty for no history: finished tasks then expire with the store's records, and no store can be rebuilt."""
    retention_ms: int = 90 * DAY_MS
    partition_ms: int = 7 * DAY_MS
    """The time range of a table partition. A query without a time range opens every partition."""
    searchable: dict[str, tuple[str, ...]] = {}
    """Parameters by which tasks can be searched, by task type."""
    linger_ms: int = 100
    """How long a replicator waits for more events before it writes a batch; 0 for no wait. A flush request ends it."""


def _days(text: str) -> int:
    days = float(text)
    if not 0 < days < 36_500:
        raise ValueError("must be a positive number of days")
    return round(days * DAY_MS)


def _linger_ms(text: str) -> int:
    linger_ms = int(text)
    if not 0 <= linger_ms <= 60_000:
        raise ValueError("must be between 0 and 60000 milliseconds")
    return linger_ms


def _searchable(text: str) -> dict[str, tuple[str, ...]]:
    """`task_type:parameter`, comma-separated."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        task_type, colon, parameter = entry.partition(":")
        if not (NAME.fullmatch(task_type) and colon and parameter):
            raise ValueError(f"{entry!r} must be written as task_type:parameter")
        found[task_type] = (*found.get(task_type, ()), parameter)
    return found


HISTORY_SETTINGS: dict[str, Setting] = {
    "DATABASE_URL": Setting("history", "database_url", str),
    "TIDEQ_HISTORY_RETENTION_DAYS": Setting("history", "retention_ms", _days),
    "TIDEQ_HISTORY_PARTITION_DAYS": Setting("history", "partition_ms", _days),
    "TIDEQ_REPLICATION_LINGER_MS": Setting("history", "linger_ms", _linger_ms),
    "TIDEQ_SEARCHABLE_PARAMETERS": Setting("history", "searchable", _searchable),
}
