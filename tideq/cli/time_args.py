"""Parses times of the command line: `90s`, `1h30m`, `7d`, or an instant like 2026-03-02T09:15:00Z. Pure."""

import re
from datetime import UTC, datetime, timedelta

PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
DURATION = re.compile(rf"(?:{PART.pattern})+|\d+(?:\.\d+)?")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def duration(text: str) -> timedelta:
    """A number without a unit is seconds. Raises ValueError."""
    if not DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write one like 90s, 1h30m or 7d")
    parts = PART.findall(text) or [(text, "s")]
    return timedelta(seconds=sum(float(number) * SECONDS[unit] for number, unit in parts))


def moment(text: str, now: datetime) -> datetime:
    """An instant, or a duration before now; an instant without an offset is UTC. Raises ValueError."""
    if DURATION.fullmatch(text):
        return now - duration(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither an instant like 2026-03-02T09:15:00Z nor a duration like 24h") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
