"""Numbers behind metrics: what is counted, plainly, and handed on as readings when somebody looks.

Counting is adding to a number. A name that `METRICS` does not have is an error where it is counted.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from tideq.queue_core.telemetry.metrics import METRICS, SHORT_SECONDS

MAX_TASK_TYPES = 200
OTHER = "other"

Labels = tuple[str, ...]


class SampleHistogram:
    """How many values lie in which range, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SHORT_SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def note(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def add(self, other: "SampleHistogram") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: how many are no more than each bound."""
        return list(zip([*(f"{bound:g}" for bound in self.bounds), "+Inf"], accumulate(self.counts), strict=True))


Sample = float | SampleHistogram
Samples = dict[str, dict[Labels, Sample]]
"""By metric, then by the values of its labels."""


class Counters:
    """Counters and distributions of one process, by metric and labels."""

    def __init__(self) -> None:
        self._counts: dict[str, defaultdict[Labels, float]] = {metric: defaultdict(float) for metric in METRICS}
        self._distributions: dict[str, dict[Labels, SampleHistogram]] = {metric: {} for metric in METRICS}
        self._observed: dict[str, Callable[[], Mapping[Labels, float]]] = {}

    def add(self, metric: str, *labels: str, amount: float = 1) -> None:
        self._counts[metric][labels] += amount

    def declare(self, metric: str, *rows: Labels) -> None:
        """Told from the beginning, as nothing for those labels: what first appears as one never rose."""
        for labels in rows:
            self._counts[metric][labels] += 0

    def watch(self, metric: str, look: Callable[[], float]) -> None:
        """A number that somebody else counts."""
        self.observe(metric, lambda: {(): look()})

    def observe(self, metric: str, look: Callable[[], Mapping[Labels, float]]) -> None:
        """Numbers that somebody else keeps, by labels."""
        self._observed[metric] = look

    def distribution(self, metric: str, labels: Labels, bounds: Sequence[float]) -> SampleHistogram:
        """To be noted in, and kept by whoever notes often."""
        known = self._distributions[metric]
        if labels not in known:
            known[labels] = SampleHistogram(bounds)
        return known[labels]

    def readings(self, process: str) -> Samples:
        """Copies, so that a thread may look while others count."""
        told: Samples = {
            metric: {(process, *labels): value for labels, value in look().items()}
            for metric, look in list(self._observed.items())
        }
        for rows in (self._counts, self._distributions):
            for metric, found in rows.items():
                if found:
                    told[metric] = {(process, *labels): each for labels, each in list(found.items())}
        return told


class TypeNames:
    """Task types as a label: users choose them, so only the first so many are told by name.

    They keep their names: a type that comes and goes between a name and `other` would be two halves of a series.
    """

    def __init__(self, most: int = MAX_TASK_TYPES) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, task_type: str) -> str:
        if task_type in self._known:
            return task_type
        if len(self._known) >= self._most or task_type == OTHER:
            return OTHER
        self._known.add(task_type)
        return task_type

    def summed(self, counts: Iterable[tuple[str, int]]) -> dict[Labels, Sample]:
        """The most frequent are met first."""
        told: defaultdict[Labels, float] = defaultdict(float)
        for task_type, count in sorted(counts, key=lambda item: (-item[1], item[0])):
            told[(self.label(task_type),)] += count
        return dict(told)


def merged(parts: Iterable[Samples]) -> Samples:
    """What several tell; of the same number told twice the last counts."""
    told: Samples = {}
    for part in parts:
        for metric, values in part.items():
            told.setdefault(metric, {}).update(values)
    return told


def encode(readings: Samples) -> bytes:
    """For another process of the same service."""
    return msgspec.json.encode(
        {metric: [_row(*each) for each in values.items()] for metric, values in readings.items()}
    )


def decode(told: bytes) -> Samples:
    rows: dict[str, list[Any]] = msgspec.json.decode(told)
    return {metric: dict(_reading(*row) for row in found) for metric, found in rows.items()}


def _row(labels: Labels, value: Sample) -> tuple[Any, ...]:
    if isinstance(value, SampleHistogram):
        return labels, value.total, value.bounds, value.counts
    return labels, value, None, None


def _reading(labels: list[str], value: float, bounds: list[float] | None, counts: list[int] | None) -> Any:
    if bounds is None or counts is None:
        return tuple(labels), value
    distribution = SampleHistogram(bounds)
    distribution.counts, distribution.total = counts, value
    return tuple(labels), distribution
