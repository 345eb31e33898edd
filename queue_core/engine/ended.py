"""What a partition counts as ended: tasks by type and the state they ended in, whatever has left the store since.

The scripts count where a task ends, comes back to life or is purged. What that misses (a store that lost writes or was
emptied, a version that did not count yet) history sets right: see `recount.py` in `persistence`.

Only so many kinds are counted by name: what belongs to the rest is counted as type `OTHERS`, by state, and so sums by
state are exact whatever the number of types. Which types have a name is chosen anew with each recount.
"""

from collections import Counter
from collections.abc import Container, Mapping
from typing import NamedTuple

from tideq.queue_core.engine.replies import accepted, known_number, number, pairs, text
from tideq.queue_core.engine.scripts import Scripts

Kind = tuple[str, str]
"""A task type, and the state its tasks ended in."""
OTHERS = "*"
"""In place of a task type: all those that are not counted by name."""
MOST_KINDS = 800
"""Counted by name: 200 types in four states; `include/count.lua` keeps to it."""
SINCE, SET_RIGHT = "#since", "#at"
"""Beside the counts, under names that no task type has."""


class Ended(NamedTuple):
    counts: dict[Kind, int]
    set_right_at: str
    """When history last set the counts right; empty for never."""
    last_words: dict[str, Kind | None]
    """Of tasks that the outbox tells of beyond what history has: how they ended; None while they live or are purged."""
    is_whole: bool
    """Whether these are all such tasks: of very many, only the first are told."""


class EndedTasks:
    """Of one partition."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    @property
    def present_epoch(self) -> str:
        return self._scripts.epoch

    async def is_due(self, every_ms: int) -> bool:
        """Whether it is so long since history set the counts right, or that was in an earlier epoch of the store."""
        now, at, epoch = accepted(await self._scripts.call("recounted"))
        set_right_ms = known_number(text(at) or 0, SET_RIGHT) or 0
        return text(epoch) != self.present_epoch or number(now) - set_right_ms > every_ms

    async def look(self, after: str) -> Ended:
        """`after` is the outbox entry that history had last."""
        _, fields, words, is_whole = accepted(await self._scripts.call("ended", after=after, is_bulk=True))
        known = pairs(fields)
        return Ended(
            counts=ended_counts(known),
            set_right_at=known.get(SET_RIGHT, ""),
            last_words={task_id: _kind(word) if word else None for task_id, word in pairs(words).items()},
            is_whole=bool(is_whole),
        )

    async def set_right(self, found: Ended, differences: Mapping[Kind, int]) -> bool:
        """Whether nobody else was faster."""
        rows = [value for kind, amount in differences.items() for value in (" ".join(kind), amount)]
        reply = await self._scripts.call("recount", rows=rows, found_at=found.set_right_at)
        return bool(number(accepted(reply)[0]))


def ended_counts(fields: Mapping[str, str]) -> dict[Kind, int]:
    known = {field: known_number(count, field) for field, count in fields.items() if not field.startswith("#")}
    return {_kind(field): count for field, count in known.items() if count is not None}


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
    """`None` where history has set the counts right."""
    return known_number(fields[SINCE], SINCE) if SINCE in fields else None


def _kind(text_of_both: str) -> Kind:
    task_type, _, state = text_of_both.partition(" ")
    return task_type, state
