"""Dead letters and their patterns."""

from datetime import datetime

import msgspec

from tideq.client.models.tasks import Task


class DeadLetter(Task, frozen=True, kw_only=True, dict=True):
    """A task that became a dead letter, with its pattern."""

    died_at: datetime
    pattern: str = ""
    """Shared by dead letters of one type with the same normalised error."""
    message: str = ""
    """Its error without ids, numbers and quoted texts."""
    retriable: bool = True


class DeadLetterPage(msgspec.Struct, frozen=True, kw_only=True):
    tasks: tuple[DeadLetter, ...]
    next_cursor: str | None = None
    total: int | None = None


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one type with the same normalised error."""

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
    """Counts of dead letters that matched, were replayed or refused."""

    matched: int
    replayed: int
    refused: int = 0
