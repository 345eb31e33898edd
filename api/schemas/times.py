"""Converts between `queue_core`'s milliseconds and HTTP's RFC 3339 times and seconds."""

import functools
from datetime import UTC, datetime
from typing import Annotated

from tideq.api.schemas.base import about

InstantIn = Annotated[datetime, about("RFC 3339; without an offset it is UTC.", format="date-time")]


@functools.lru_cache(4_096)
def rfc3339(instant_ms: int) -> str:
    """Clamped to the years 1 to 9999. Cached, because the tasks of one claim share their instants."""
    instant_ms = min(max(instant_ms, -62_135_596_800_000), 253_402_300_799_999)
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def maybe_rfc3339(instant_ms: int | None) -> str | None:
    return None if instant_ms is None else rfc3339(instant_ms)


UNITS = ((31_536_000, "year"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def in_words(milliseconds: int) -> str:
    """A duration in its largest unit and the next, such as `3 hours 20 minutes`."""
    left, parts = max(milliseconds, 0) // 1000, list[str]()
    for size, unit in UNITS:
        whole, left = divmod(left, size)
        if whole:
            parts.append(f"{whole} {unit}{'' if whole == 1 else 's'}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 seconds"


def to_ms(seconds: float) -> int:
    return round(seconds * 1000)


def instant_ms(instant: datetime) -> int:
    return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)
