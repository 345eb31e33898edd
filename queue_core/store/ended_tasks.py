"""A partition's counts of ended tasks by type and final state, including tasks that have left the store.

Scripts update the counts when a task ends, is requeued or is purged. Wrong counts (after lost writes, an emptied store,
or a version that did not count) are corrected from history: see `recount.py` in `persistence`.

Only a maximum of kinds is counted by name. The rest counts as type `OTHERS`, by state, so sums by state are exact for
any number of types. Each recount selects anew which types are counted by name.
"""

from collections import Counter
from collections.abc import Container, Mapping
from typing import NamedTuple

from tideq.queue_core.scripts.replies import accepted, number, number_or_none, pairs, text
from tideq.queue_core.scripts.runner import Scripts

Kind = tuple[str, str]
"""A task type, and the state its tasks ended in."""
OTHERS = "*"
"""In place of a task type: all types that are not counted by name."""
MOST_KINDS = 800
"""Counted by name: 200 types in four states; `include/task_counts.lua` keeps to it."""
SINCE, CORRECTED_AT = "#since", "#at"
"""Fields beside the counts; no task type can have these names."""


class EndedCounts(NamedTuple):
    counts: dict[Kind, int]
    corrected_at: str
    """When history last corrected the counts; empty for never."""
    latest_kinds: dict[str, Kind | None]
    """Tasks whose last events history does not have yet, with how they ended; None for live or purged ones."""
    is_whole: bool
    """Whether `latest_kinds` is complete; of very many tasks, only the first are returned."""


class EndedTasks:
    """The counts of one partition."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    @property
    def present_epoch(self) -> str:
        return self._scripts.epoch

    async def is_due(self, every_ms: int) -> bool:
        """Whether the last correction from history is that old, or of an earlier epoch of the store."""
        now, at, epoch = accepted(await self._scripts.call("last_correction"))
        corrected_ms = number_or_none(text(at) or 0, CORRECTED_AT) or 0
        return text(epoch) != self.present_epoch or number(now) - corrected_ms > every_ms

    async def read(self, after: str) -> EndedCounts:
        """Returns the counts; `after` is the last outbox entry that history has."""
        _, fields, latest, is_whole = accepted(await self._scripts.call("ended_counts", after=after, is_bulk=True))
        stored = pairs(fields)
        return EndedCounts(
            counts=ended_counts(stored),
            corrected_at=stored.get(CORRECTED_AT, ""),
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


def named_kinds(counts: Mapping[Kind, int]) -> frozenset[Kind]:
    """Those to be counted by name, which are the most frequent."""
    by_frequency = sorted((kind for kind in counts if kind[0] != OTHERS), key=lambda kind: (-counts[kind], kind))
    return frozenset(by_frequency[:MOST_KINDS])


def folded(counts: Mapping[Kind, int], named: Container[Kind]) -> Counter[Kind]:
    """The same counts with only those by name, the rest by state."""
    totals: Counter[Kind] = Counter()
    for (task_type, state), count in counts.items():
        totals[(task_type, state) if (task_type, state) in named else (OTHERS, state)] += count
    return totals


def counted_since_ms(fields: Mapping[str, str]) -> int | None:
    """Returns since when ended tasks are counted; None if history has corrected the counts."""
    return number_or_none(fields[SINCE], SINCE) if SINCE in fields else None


def _kind(text_of_both: str) -> Kind:
    task_type, _, state = text_of_both.partition(" ")
    return task_type, state
