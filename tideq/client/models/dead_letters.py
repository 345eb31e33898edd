"""What was given up."""

from datetime import datetime

import msgspec

from tideq.client.models.tasks import Task


class DeadLetter(Task, frozen=True, kw_only=True, dict=True):
    """A task that was given up, and how it died."""

    died_at: datetime
    pattern: str = ""
    """Tasks of one type that died alike share it."""
    message: str = ""
    """Its error without what differs from one to the next."""
    retriable: bool = True


class DeadLetterPage(msgspec.Struct, frozen=True, kw_only=True):
    tasks: tuple[DeadLetter, ...]
    next_cursor: str | None = None
    total: int | None = None


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one type that died alike."""

    pattern: str
    task_type: str
    reason: str
    message: str = ""
    count: int = 0
    first_seen: datetime | None = None
    last_seen: datetime | None = None
    retriable_count: int = 0
    is_new: bool = False


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    patterns: tuple[Pattern, ...]


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What matched, and what became of it."""

    matched: int
    replayed: int
    refused: int = 0
