"""Metric samples: counters and histograms of one process, and their form for exposition and for other processes.

A metric name that `METRICS` does not have raises KeyError where it is counted.
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
    """Counts of values by bucket, and their sum."""

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
        """Cumulative counts by upper bound, in Prometheus' form."""
        return list(zip([*(f"{bound:g}" for bound in self.bounds), "+Inf"], accumulate(self.counts), strict=True))


Sample = float | SampleHistogram
Samples = dict[str, dict[Labels, Sample]]
"""Samples by metric name, then by label values."""


class Counters:
    """Counters, gauges and histograms of one process, by metric and labels."""

    def __init__(self) -> None:
        self._counts: dict[str, defaultdict[Labels, float]] = {metric: defaultdict(float) for metric in METRICS}
        self._histograms: dict[str, dict[Labels, SampleHistogram]] = {metric: {} for metric in METRICS}
        self._observed: dict[str, Callable[[], Mapping[Labels, float]]] = {}

    def add(self, metric: str, *labels: str, amount: float = 1) -> None:
        self._counts[metric][labels] += amount

    def declare(self, metric: str, *rows: Labels) -> None:
        """Export these labels as 0 from the start: a counter that first appears as 1 has no increase in Prometheus."""
        for labels in rows:
            self._counts[metric][labels] += 0

    def observe_value(self, metric: str, read: Callable[[], float]) -> None:
        """Export a number without labels that `read` returns at each collection."""
        self.observe(metric, lambda: {(): read()})

    def observe(self, metric: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        """Export the numbers by labels that `read` returns at each collection."""
        self._observed[metric] = read

    def histogram(self, metric: str, labels: Labels, bounds: Sequence[float]) -> SampleHistogram:
        """Returns the histogram of these labels, created at first use; frequent callers keep the reference."""
        by_labels = self._histograms[metric]
        if labels not in by_labels:
            by_labels[labels] = SampleHistogram(bounds)
        return by_labels[labels]

    def samples(self, process: str) -> Samples:
        """Returns all samples, labelled with the process. Copies, so that one thread may read while others count."""
        collected: Samples = {
            metric: {(process, *labels): value for labels, value in read().items()}
            for metric, read in list(self._observed.items())
        }
        for rows in (self._counts, self._histograms):
            for metric, found in rows.items():
                if found:
                    collected[metric] = {(process, *labels): each for labels, each in list(found.items())}
        return collected


class TypeNames:
    """Task types as a label. Users choose types, so only the first `most` get their own name; the rest are `other`.

    A type keeps its label for the life of the process: switching to `other` and back would split its series.
    """

    def __init__(self, most: int = MAX_TASK_TYPES) -> None:
        self._most = most
        self._named: set[str] = set()

    def label(self, task_type: str) -> str:
        if task_type in self._named:
            return task_type
        if len(self._named) >= self._most or task_type == OTHER:
            return OTHER
        self._named.add(task_type)
        return task_type

    def summed(self, counts: Iterable[tuple[str, int]]) -> dict[Labels, Sample]:
        """Returns the counts summed by label; the most frequent types get names first."""
        totals: defaultdict[Labels, float] = defaultdict(float)
        for task_type, count in sorted(counts, key=lambda item: (-item[1], item[0])):
            totals[(self.label(task_type),)] += count
        return dict(totals)


def merged(parts: Iterable[Samples]) -> Samples:
    """Returns the samples of all parts; where two have the same metric and labels, the later part wins."""
    result: Samples = {}
    for part in parts:
        for metric, values in part.items():
            result.setdefault(metric, {}).update(values)
    return result


def encode(samples: Samples) -> bytes:
    """For another process of the same service."""
    return msgspec.json.encode({metric: [_row(*each) for each in values.items()] for metric, values in samples.items()})


def decode(encoded: bytes) -> Samples:
    rows: dict[str, list[Any]] = msgspec.json.decode(encoded)
    return {metric: dict(_sample(*row) for row in found) for metric, found in rows.items()}


def _row(labels: Labels, value: Sample) -> tuple[Any, ...]:
    if isinstance(value, SampleHistogram):
        return labels, value.total, value.bounds, value.counts
    return labels, value, None, None


def _sample(labels: list[str], value: float, bounds: list[float] | None, counts: list[int] | None) -> Any:
    if bounds is None or counts is None:
        return tuple(labels), value
    histogram = SampleHistogram(bounds)
    histogram.counts, histogram.total = counts, value
    return tuple(labels), histogram
