"""A partition's counts of ended tasks by type and final state, including tasks that have left the store.

Scripts update the counts when a task ends, is requeued or is purged. Wrong counts (after lost writes, an emptied store,
or a version that did not count) are corrected from history: see `recount.py` in `persistence`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tideq.queue_core.scripts.replies import accepted, number, number_or_none, pairs
from tideq.queue_core.scripts.runner import Scripts

Kind = tuple[str, str]
"""A task type, and the state its tasks ended in."""
SINCE, CORRECTED_AT, EPOCH = "#since", "#at", "#epoch"
"""Fields beside the counts; no task type can have these names."""


class EndedCounts(NamedTuple):
    now_ms: int
    counts: dict[Kind, int]
    corrected_at: str
    """When history last corrected the counts; empty for never."""
    epoch: str
    """The store's epoch at that time."""
    latest_kinds: dict[str, Kind | None]
    """Tasks whose last events history does not have yet, with how they ended; None for live or purged ones."""
    is_whole: bool
    """Whether `latest_kinds` is complete; of very many tasks, only the first are returned."""

    def is_due(self, epoch: str, every_ms: int) -> bool:
        return (
            self.epoch != epoch or self.now_ms - (number_or_none(self.corrected_at or 0, CORRECTED_AT) or 0) > every_ms
        )


class EndedTasks:
    """The counts of one partition."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    @property
    def present_epoch(self) -> str:
        return self._scripts.epoch

    async def read(self, after: str) -> EndedCounts:
        """Returns the counts; `after` is the last outbox entry that history has."""
        now, fields, latest, is_whole = accepted(await self._scripts.call("ended_counts", after=after, is_bulk=True))
        stored = pairs(fields)
        return EndedCounts(
            now_ms=number(now),
            counts=ended_counts(stored),
            corrected_at=stored.get(CORRECTED_AT, ""),
            epoch=stored.get(EPOCH, ""),
            latest_kinds={task_id: _kind(kind) if kind else None for task_id, kind in pairs(latest).items()},
            is_whole=bool(is_whole),
        )

    async def correct(self, found: EndedCounts, differences: Mapping[Kind, int]) -> bool:
        """Add the differences; returns False if another process has corrected the counts since they were read."""
        rows = [value for kind, amount in differences.items() for value in (" ".join(kind), amount)]
        reply = await self._scripts.call("correct_ended_counts", rows=rows, found_at=found.corrected_at)
        return bool(number(accepted(reply)[0]))


def ended_counts(fields: Mapping[str, str]) -> dict[Kind, int]:
    numbers = {field: number_or_none(count, field) for field, count in fields.items() if not field.startswith("#")}
    return {_kind(field): count for field, count in numbers.items() if count is not None}


def counted_since_ms(fields: Mapping[str, str]) -> int | None:
    """Returns since when ended tasks are counted; None if history has corrected the counts."""
    return number_or_none(fields[SINCE], SINCE) if SINCE in fields else None


def _kind(text_of_both: str) -> Kind:
    task_type, _, state = text_of_both.partition(" ")
    return task_type, state
